"""The runtime that every coordinator runs on (Kafka's `coordinator-common`)."""
