"""Blocking clients of record batches, without asyncio."""
