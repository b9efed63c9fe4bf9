"""A topic's new JSON records into a Delta table: `spark-submit jobs/bronze_to_silver.py ...`.

Run it from a schedule: each run reads from the checkpoint to the topic's end and stops. A run that
was killed is made good by the next one: topic, checkpoint and table agree, no row twice.
"""

from __future__ import annotations

import sys
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.types import StringType

from headwater_spark.scheduled_job import (
    MALFORMED,
    JobSettings,
    check_topics,
    ddl_schema,
    job_options,
    job_session,
    max_offsets_option,
    run_available,
    run_job,
    settings,
    stream,
    value_schema_option,
    waiting_offsets,
)

OF_RECORD = ("_key", "_partition", "_offset", "_timestamp")


@click.command("bronze_to_silver")
@click.argument("topic")
@click.argument("table")
@value_schema_option
@click.option("--checkpoint", metavar="URI", help="Default: TABLE/_checkpoint.")
@click.option(
    "--malformed",
    type=click.Choice(("keep", "drop", "fail")),
    default="keep",
    show_default=True,
    help=f"Values that are no JSON of the schema: keep their text in {MALFORMED}, drop, or fail.",
)
@max_offsets_option
@job_options
def bronze_to_silver(
    topic: str,
    table: str,
    value_schema: str,
    checkpoint: str | None,
    malformed: str,
    max_offsets: int | None,
    **shared: Any,
) -> int:
    """Append the new records of TOPIC to the Delta table at the path or URI TABLE."""
    job = settings("bronze_to_silver", shared)
    check_topics(job, topic)
    at = checkpoint or f"{table.rstrip('/')}/_checkpoint"
    with job_session(job) as spark:
        rows = silver(spark, job, topic, value_schema, malformed, max_offsets)
        if job.is_dry_run:
            count = waiting_offsets(spark, job, topic, at)
            job.summary(f"{count} offsets of {topic} wait for {table}", offsets=count)
            return 0
        writer = rows.writeStream.format("delta").option("checkpointLocation", at)
        count = run_available(writer.option("path", table))
        job.summary(f"{count} records of {topic} into {table}", records=count)
    return 0


def silver(
    spark: SparkSession,
    job: JobSettings,
    topic: str,
    value_schema: str,
    malformed: str,
    max_offsets: int | None,
) -> DataFrame:
    """The table's rows: the value's fields, and where each record stands in the topic."""
    schema = ddl_schema("--value-schema", value_schema).add(MALFORMED, StringType())
    mode = {"mode": "FAILFAST" if malformed == "fail" else "PERMISSIVE"}
    options = {**mode, "columnNameOfCorruptRecord": MALFORMED}
    records = stream(spark, job, topic, max_offsets)
    rows = records.select(
        F.from_json(F.col("value").cast("string"), schema, options).alias("row"),
        F.col("key").cast("string").alias("_key"),
        *(F.col(name[1:]).alias(name) for name in OF_RECORD[1:]),
    ).select("row.*", *OF_RECORD)
    return rows.where(F.col(MALFORMED).isNull()) if malformed == "drop" else rows


if __name__ == "__main__":
    sys.exit(run_job(bronze_to_silver))
