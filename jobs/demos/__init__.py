"""Shared by the demos."""
