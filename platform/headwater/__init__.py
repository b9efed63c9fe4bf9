"""Headwater: a Kafka-compatible log whose brokers run inside Spark and whose history is Delta."""

__version__ = "0.1.0"
