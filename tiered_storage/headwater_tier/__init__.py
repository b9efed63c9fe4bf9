"""Tiered storage: topics' history in Delta tables, written, read back, maintained and verified."""
