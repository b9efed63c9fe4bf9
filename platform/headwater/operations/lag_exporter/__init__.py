"""Offsets and lags of any Kafka cluster for Prometheus, under kafka_exporter's names."""
