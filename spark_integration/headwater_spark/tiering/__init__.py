"""Tiering as Spark jobs: committed records move from topics into Delta tables."""
