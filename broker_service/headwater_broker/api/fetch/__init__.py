"""The Fetch request: codec, fast path, reads, responses."""
