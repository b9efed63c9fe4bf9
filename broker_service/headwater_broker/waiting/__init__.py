"""Parked requests: what they wait for, and when they give up."""
