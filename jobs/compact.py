"""Rewrites small files of topics' tables, and of other Delta tables, as large ones.

    spark-submit jobs/compact.py flights --table /data/silver/flights --vacuum-hours 168

The table of a topic is compacted by Headwater's own rewrite, as a foreign commit would end its
tiering; other tables by Delta's OPTIMIZE. No row changes: readers and streams go on.
"""

from __future__ import annotations

import sys
from typing import Any

import click
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from headwater.errors import UsageError
from headwater.system import SystemClock
from headwater_spark.scheduled_job import (
    JobSettings,
    check_topics,
    job_options,
    job_session,
    run_job,
    settings,
)
from headwater_spark.tiering.table_maintenance import TableMaintenance
from headwater_tier.compaction import COMPACT_FILES_MIN, plan_compaction
from headwater_tier.delta import LogTable
from headwater_tier.table_location import locate_table


@click.command("compact")
@click.argument("topics", nargs=-1)
@click.option("--table", "tables", multiple=True, metavar="URI", help="A Delta table; repeatable.")
@click.option(
    "--files-min",
    type=click.IntRange(min=2),
    default=COMPACT_FILES_MIN,
    show_default=True,
    help="Small files of a topic's table that are rewritten as one, at least.",
)
@click.option(
    "--vacuum-hours",
    type=click.IntRange(min=1),
    metavar="HOURS",
    help="Delete files of each --table that no version of the last HOURS needs.",
)
@job_options
def compact(
    topics: tuple[str, ...],
    tables: tuple[str, ...],
    files_min: int,
    vacuum_hours: int | None,
    **shared: Any,
) -> int:
    """Compact the Delta tables of TOPICS, and each --table."""
    job = settings("compact", shared)
    if not topics and not tables:
        raise UsageError("give a TOPIC or --table")
    check_topics(job, *topics)
    with job_session(job) as spark:
        files = {topic: _topic_files(spark, job, topic, files_min) for topic in topics}
        for table in tables:
            files[table] = _table_files(spark, job, table, vacuum_hours)
        did = "would be rewritten" if job.is_dry_run else "rewritten"
        text = ", ".join(f"{count} files of {name} {did}" for name, count in files.items())
        job.summary(text, files=files)
    return 0


def _topic_files(spark: SparkSession, job: JobSettings, topic: str, files_min: int) -> int:
    brokers = job.brokers()
    try:
        location = locate_table(brokers, brokers.topics([topic])[topic])
        if job.is_dry_run:
            return len(plan_compaction(LogTable(location).snapshot, files_min=files_min))
        maintenance = TableMaintenance(spark, brokers, SystemClock(), location, files_min=files_min)
        return maintenance.compact_all()
    finally:
        brokers.close()


def _table_files(
    spark: SparkSession, job: JobSettings, table: str, vacuum_hours: int | None
) -> int:
    found = DeltaTable.forPath(spark, table)
    if job.is_dry_run:
        return int(found.detail().collect()[0].numFiles)
    (row,) = found.optimize().executeCompaction().select("metrics.numFilesRemoved").collect()
    if vacuum_hours is not None:
        found.vacuum(vacuum_hours)
    return int(row.numFilesRemoved)


if __name__ == "__main__":
    sys.exit(run_job(compact))
