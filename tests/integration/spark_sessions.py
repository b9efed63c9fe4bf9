"""Spark sessions of the tests: one per module, and none left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext
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
def spark_session(master: str, *, delta: bool, **conf: str) -> Iterator[SparkSession]:
    """A session in a JVM of its own: jars can't be added to a JVM that runs already."""
    _end_jvm()
    rows = {key.replace("_", "."): value for key, value in conf.items()}
    spark = headwater_spark.session(master, delta=delta, conf={**CONF, **rows})
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()
        _end_jvm()


def _end_jvm() -> None:
    gateway = SparkContext._gateway
    if gateway is None:
        return
    gateway.shutdown()
    process = getattr(gateway, "proc", None)
    if process is not None:
        process.stdin.close()
        process.wait(30)
    SparkContext._gateway = None
    SparkContext._jvm = None
    os.environ.pop("PYSPARK_GATEWAY_PORT", None)
