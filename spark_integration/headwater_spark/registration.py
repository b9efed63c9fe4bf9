"""`register(spark)`: makes `format("headwater")` known to a session that did not discover it."""

from __future__ import annotations

from pyspark.sql import SparkSession

from headwater_spark.source.data_source import HeadwaterDataSource


def register(spark: SparkSession) -> None:
    """Register the data source.

    Not needed where `PYSPARK_PYTHON` names the Python that has Headwater: Spark discovers the
    package `pyspark_headwater` there, once per JVM.
    """
    spark.dataSource.register(HeadwaterDataSource)
