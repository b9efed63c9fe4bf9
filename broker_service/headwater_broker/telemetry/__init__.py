"""Metrics, the status document and the status page."""
