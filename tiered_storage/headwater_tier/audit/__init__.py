"""Counts the records of each minute at each place they should be (LinkedIn's Kafka Audit)."""
