"""Typed tables: values decoded into columns, quarantine, the latest row per key."""
