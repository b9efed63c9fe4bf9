"""Record batches of format v2: header access in place, record codec, compression."""
