"""A blocking client of record batches, for Spark tasks and tools."""
