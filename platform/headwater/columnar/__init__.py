"""Record batches to Arrow and back (numba, pyarrow)."""
