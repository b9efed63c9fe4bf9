"""Spark sessions of the tests: one per module, one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

import headwater_spark
from integration.jvm_tools import SHORT_LIVED_JVM

CONF = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.extraJavaOptions": SHORT_LIVED_JVM,
    "spark.executor.extraJavaOptions": SHORT_LIVED_JVM,
}


@contextmanager
def spark_session(
    master: str, *, delta: bool, conf: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session of one module; the JVM behind it serves them all."""
    spark = headwater_spark.session(master, delta=delta, conf={**CONF, **(conf or {})})
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
