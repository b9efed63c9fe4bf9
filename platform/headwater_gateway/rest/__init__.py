"""Produce, consume and administer over HTTP, in the habits of Kafka's REST proxy (v2 and v3)."""
