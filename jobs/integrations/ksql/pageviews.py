"""ksqlDB's pageviews, in Spark SQL: a stream joined with a table, and counts per minute.

    spark-submit jobs/integrations/ksql/pageviews.py --checkpoints DIR --follow

Topics, all with JSON values: `pageviews` (user, page, viewed_at in ms) and `users` (key: the user;
region) come in; `pageviews-enriched` and `pageviews-per-minute` go out, exactly once. PAGEVIEWS
and USERS are ksqlDB's CREATE STREAM and CREATE TABLE over a topic, QUERIES its CREATE ... AS
SELECT: persistent queries, each with a checkpoint, each writing a topic.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import click
from pyspark.sql import DataFrame, SparkSession

from headwater_spark.scheduled_job import (
    JobSettings,
    check_topics,
    job_options,
    job_session,
    run_available,
    run_job,
    settings,
    stream,
)

APPEND, UPDATE = "append", "update"
VIEWS_TOPIC, USERS_TOPIC = "pageviews", "users"
LATENESS = "1 minute"
"""How long a minute's count is kept open for views that come late."""

PAGEVIEWS = """
    SELECT row.user, row.page, CAST(row.viewed_at / 1000 AS TIMESTAMP) AS viewed_at
    FROM (SELECT from_json(CAST(value AS STRING),
                           'user STRING, page STRING, viewed_at BIGINT') AS row
          FROM {records})
    WHERE row.page IS NOT NULL AND row.viewed_at IS NOT NULL
"""
USERS = """
    SELECT user, from_json(last, 'region STRING').region AS region
    FROM (SELECT CAST(key AS STRING) AS user,
                 CAST(max_by(value, struct(partition, offset)) AS STRING) AS last
          FROM {records} GROUP BY key)
    WHERE last IS NOT NULL
"""
"""A table over a topic: the last record of a key is its row, a null removes it."""


class Query(NamedTuple):
    """A persistent query: its name, which is its topic's, its SELECT, and Spark's output mode."""

    name: str
    select: str
    output_mode: str


QUERIES = (
    Query(
        "pageviews-enriched",
        """
        SELECT v.user AS key,
               to_json(struct(v.user, v.page, u.region, v.viewed_at)) AS value
        FROM pageviews v LEFT JOIN users u ON v.user = u.user
        """,
        APPEND,
    ),
    Query(
        "pageviews-per-minute",
        """
        SELECT page AS key,
               to_json(struct(page, minute.start AS minute, views)) AS value
        FROM (SELECT page, window(viewed_at, '1 minute') AS minute, count(*) AS views
              FROM pageviews GROUP BY page, window(viewed_at, '1 minute'))
        """,
        UPDATE,
    ),
)


@click.command("pageviews")
@click.option("--checkpoints", required=True, metavar="URI", help="Where the next run goes on.")
@click.option("--follow", is_flag=True, help="Go on until it is stopped, a batch a second.")
@job_options
def pageviews(checkpoints: str, follow: bool, **shared: Any) -> int:
    """Run both queries."""
    job = settings("pageviews", shared)
    check_topics(job, VIEWS_TOPIC, USERS_TOPIC, *(query.name for query in QUERIES))
    with job_session(job) as spark:
        define(spark, job)
        if job.is_dry_run:
            job.summary(f"{len(QUERIES)} queries can run")
            return 0
        counts = {query.name: run(spark, job, query, checkpoints, follow) for query in QUERIES}
        if follow:
            spark.streams.awaitAnyTermination()
        job.summary(", ".join(f"{name}: {n} views read" for name, n in counts.items()), **counts)
    return 0


def define(spark: SparkSession, job: JobSettings) -> None:
    """The views `pageviews`, a stream, and `users`, which each micro-batch reads anew."""
    views = spark.sql(PAGEVIEWS, records=stream(spark, job, VIEWS_TOPIC, None))
    views.withWatermark("viewed_at", LATENESS).createOrReplaceTempView("pageviews")
    users = spark.read.format("headwater").options(**job.connection())
    records = users.option("subscribe", USERS_TOPIC).load()
    spark.sql(USERS, records=records).createOrReplaceTempView("users")


def run(spark: SparkSession, job: JobSettings, query: Query, checkpoints: str, follow: bool) -> int:
    """Start a query, or run it to the topic's end; the rows that it read."""
    rows: DataFrame = spark.sql(query.select)
    if query.output_mode == UPDATE:
        # Spark gives update mode to no Python sink: each micro-batch is a write of a named sink.
        sink = {**job.connection(), "topic": query.name, "headwater.sink.id": query.name}
        writer = rows.writeStream.outputMode(UPDATE).foreachBatch(
            lambda batch, _number: (
                batch.write.format("headwater").options(**sink).mode("append").save()
            )
        )
    else:
        connection = job.connection()
        writer = rows.writeStream.format("headwater").options(**connection, topic=query.name)
    writer = writer.option("checkpointLocation", f"{checkpoints}/{query.name}")
    if follow:
        writer.queryName(query.name).trigger(processingTime="1 second").start()
        return 0
    return run_available(writer)


if __name__ == "__main__":
    sys.exit(run_job(pageviews))
