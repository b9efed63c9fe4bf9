"""Decoders of record keys and values into Arrow columns: Kafka's Deserializers, for chunks."""
