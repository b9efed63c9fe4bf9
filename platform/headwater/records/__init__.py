"""Record batches: header in place, record codec, compression."""
