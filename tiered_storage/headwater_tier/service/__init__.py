"""Tiering as a service: one process without Spark that tiers every topic which asks for it."""
