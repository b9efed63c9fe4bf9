"""Sessions of Spark Connect: they have no SparkContext and no JVM beside the program."""

from __future__ import annotations

from pyspark.sql import SparkSession

from headwater.errors import UsageError

MODULE = "pyspark.sql.connect."
RANGE_ROWS = 100_000
"""Enough rows that Spark splits a range over all its slots."""


def is_connect(spark: SparkSession) -> bool:
    """True for a session of Spark Connect."""
    return type(spark).__module__.startswith(MODULE)


def require_classic(spark: SparkSession) -> None:
    """Raise UsageError for a session that cannot start brokers."""
    if is_connect(spark):
        raise UsageError(
            "brokers inside Spark need a classic session, and this one is of Spark Connect: start"
            " them in an application of their own (headwater up --spark), and give this session"
            " their kafka.bootstrap.servers"
        )


def parallelism(spark: SparkSession) -> int:
    """The number of tasks that Spark runs at once."""
    if is_connect(spark):
        splits = spark.range(RANGE_ROWS).selectExpr("spark_partition_id()").distinct()
        return max(1, int(splits.count()))
    return max(1, int(spark.sparkContext.defaultParallelism))


def describe_jobs(spark: SparkSession, text: str) -> None:
    """Name the thread's next jobs in Spark's pages; a session of Spark Connect has no such name."""
    if not is_connect(spark):
        spark.sparkContext.setJobDescription(text)
