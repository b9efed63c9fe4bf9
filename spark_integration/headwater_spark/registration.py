"""`register(spark)`: for sessions whose Python did not find `pyspark_headwater` by itself."""

from __future__ import annotations

from pyspark.sql import SparkSession

from headwater_spark.source.data_source import HeadwaterDataSource


def register(spark: SparkSession) -> None:
    """Make `format("headwater")` known to this session.

    Not needed where `PYSPARK_PYTHON` names the Python that Headwater is installed in: Spark then
    finds it by itself, once per JVM.
    """
    spark.dataSource.register(HeadwaterDataSource)
