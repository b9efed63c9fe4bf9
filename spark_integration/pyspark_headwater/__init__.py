"""Spark discovers this package by its name (`pyspark_*`) and registers `format("headwater")`."""

from headwater_spark.source.data_source import HeadwaterDataSource as DefaultSource

__all__ = ["DefaultSource"]
