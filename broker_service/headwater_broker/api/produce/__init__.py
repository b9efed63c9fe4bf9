"""The Produce request: codec, responses, rejected batches."""
