"""Spark source, sink, tiering job and Spark-managed cluster."""
