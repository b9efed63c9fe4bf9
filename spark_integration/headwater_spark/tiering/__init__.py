"""Tiering as Spark jobs: closed history moves into Delta tables."""
