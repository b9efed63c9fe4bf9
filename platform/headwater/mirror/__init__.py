"""Mirrors topics from one cluster to another, exactly once into a target with transactions."""
