"""Purgatories: requests parked until a condition holds or their timeout ends."""
