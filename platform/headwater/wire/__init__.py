"""Kafka's wire protocol as dataclasses, and the control plane's messages."""
