"""Converts record batches to Arrow columns and back (numba, pyarrow)."""
