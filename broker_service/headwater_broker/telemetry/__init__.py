"""Prometheus metrics, the status document and the status page."""
