"""Spark finds this package by its name and registers `format("headwater")`."""

from headwater_spark.source.data_source import HeadwaterDataSource as DefaultSource

__all__ = ["DefaultSource"]
