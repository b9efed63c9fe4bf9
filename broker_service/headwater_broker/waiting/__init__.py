"""Parked requests."""
