"""A topic's whole history, Delta table and tail, into another topic or a Delta table.

    spark-submit jobs/backfill.py flights --to-topic flights-v2 --where "timestamp >= '2026-01-01'"

The history is read by Spark from the topic's table, the tail from the brokers; the bounds are
fixed at the start. The write is one transaction: all of it, or nothing. A run that failed is run
again. A run that succeeded must not be run again with --to-topic; with --to-table and the same --id
the second run writes nothing.
"""

from __future__ import annotations

import sys
from typing import Any

import click
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

import headwater_spark
from headwater.errors import UsageError
from headwater_spark.scheduled_job import (
    check_topics,
    job_options,
    job_session,
    run_job,
    settings,
)

TXN_VERSION = "1"
"""Delta keeps the last version of each application id, and drops a write that repeats it."""


@click.command("backfill")
@click.argument("topic")
@click.option("--to-topic", metavar="TOPIC", help="Partitions and order are kept.")
@click.option("--to-table", metavar="URI", help="Append to the Delta table at this path or URI.")
@click.option("--where", metavar="SQL", help="A condition on key, value, partition, timestamp...")
@click.option("--id", "run_id", metavar="NAME", help="With --to-table: of this backfill, any name.")
@job_options
def backfill(
    topic: str,
    to_topic: str | None,
    to_table: str | None,
    where: str | None,
    run_id: str | None,
    **shared: Any,
) -> int:
    """Copy the records of TOPIC, those in its Delta table too, to a topic or a table."""
    job = settings("backfill", shared)
    if (to_topic is None) == (to_table is None):
        raise UsageError("give one of --to-topic and --to-table")
    if to_topic == topic:
        raise UsageError(f"--to-topic {topic} is the source itself: name another topic")
    if to_table is not None and run_id is None:
        raise UsageError("--to-table needs --id NAME: a second run of that name writes nothing")
    check_topics(job, topic, *([to_topic] if to_topic else []))
    target = to_topic or to_table
    with job_session(job) as spark:
        records = headwater_spark.table(
            spark, topic, include_headers=True, options=job.connection()
        )
        rows = records if where is None else _filtered(records, where)
        count = rows.count()
        if job.is_dry_run:
            job.summary(f"{count} records of {topic} for {target}", records=count)
            return 0
        if to_topic is not None:
            ordered = rows.repartition("partition").sortWithinPartitions("partition", "offset")
            writer = ordered.select("key", "value", "headers", "partition").write
            writer = writer.format("headwater").options(**job.connection())
            writer.option("topic", to_topic).mode("append").save()
        else:
            writer = rows.write.format("delta").option("txnAppId", f"headwater-backfill-{run_id}")
            writer.option("txnVersion", TXN_VERSION).mode("append").save(to_table)
        job.summary(f"{count} records of {topic} into {target}", records=count)
    return 0


def _filtered(records: DataFrame, where: str) -> DataFrame:
    try:
        return records.where(where)
    except PySparkException as error:
        raise UsageError(f"--where: {str(error).splitlines()[0]}") from None


if __name__ == "__main__":
    sys.exit(run_job(backfill))
