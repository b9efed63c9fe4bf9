"""A topic's JSON records joined with a Delta table, into another topic, exactly once.

    spark-submit jobs/enrich.py flights flights-named --table /data/carriers --on carrier ...

Each run reads from the checkpoint to the topic's end and stops. A micro-batch is one epoch
transaction: after any crash the next run goes on without a missing or a repeated record.
"""

from __future__ import annotations

import sys
from typing import Any

import click
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom
from pyspark.sql.types import StringType, StructType

from headwater.errors import HeadwaterError, UsageError
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

OF_RECORD = ("key", "value", "headers")


class TableKeysError(HeadwaterError):
    """The table has several rows for one key: the join would repeat records."""


@click.command("enrich")
@click.argument("source")
@click.argument("target")
@click.option("--table", required=True, metavar="URI", help="Delta table with one row per key.")
@click.option("--on", required=True, metavar="COLUMN,...", help="The key: columns of both sides.")
@value_schema_option
@click.option("--checkpoint", required=True, metavar="URI", help="Where the next run goes on.")
@max_offsets_option
@job_options
def enrich(
    source: str,
    target: str,
    table: str,
    on: str,
    value_schema: str,
    checkpoint: str,
    max_offsets: int | None,
    **shared: Any,
) -> int:
    """Write the new records of topic SOURCE, with the table's columns, to topic TARGET.

    A record without a row of its key in the table passes with its own fields, and one whose value
    is no JSON of the schema passes unchanged.
    """
    job = settings("enrich", shared)
    check_topics(job, source, target)
    with job_session(job) as spark:
        keys = [name.strip() for name in on.split(",") if name.strip()]
        rows = enriched(spark, job, source, table, keys, value_schema, max_offsets)
        if job.is_dry_run:
            count = waiting_offsets(spark, job, source, checkpoint)
            job.summary(f"{count} offsets of {source} wait for {target}", offsets=count)
            return 0
        writer = rows.writeStream.format("headwater").option("topic", target)
        writer = writer.options(**job.connection())
        count = run_available(writer.option("checkpointLocation", checkpoint))
        job.summary(f"{count} records of {source} into {target}", records=count)
    return 0


def enriched(
    spark: SparkSession,
    job: JobSettings,
    source: str,
    table: str,
    keys: list[str],
    value_schema: str,
    max_offsets: int | None,
) -> DataFrame:
    """Keys and JSON values of the target topic."""
    schema = ddl_schema("--value-schema", value_schema)
    rows = spark.read.format("delta").load(table)
    for side, columns in (("--value-schema", schema.names), ("--table", rows.columns)):
        missing = [key for key in keys if key not in columns]
        if missing or not keys:
            raise UsageError(f"--on: {side} has no column {', '.join(missing) or repr('')}")
    double = rows.groupBy(*keys).count().where("count > 1").limit(1).collect()
    if double:
        raise TableKeysError(f"{table} has {double[0]['count']} rows for one key: {double[0]}")
    options = {"columnNameOfCorruptRecord": MALFORMED}
    whole = StructType(schema.fields).add(MALFORMED, StringType())
    records = stream(spark, job, source, max_offsets, include_headers=True)
    parsed = records.select(
        *(F.col(name).alias(f"_{name}") for name in OF_RECORD),
        F.from_json(F.col("value").cast("string"), whole, options).alias("_row"),
    ).select(*(f"_{name}" for name in OF_RECORD), "_row.*")
    added = [name for name in rows.columns if name not in schema.names]
    joined = parsed.join(F.broadcast(rows.select(*keys, *added)), keys, "left")
    value = F.to_json(F.struct(*schema.names, *added)).cast("binary")
    passes = F.col("_value").isNull() | F.col(MALFORMED).isNotNull()
    return joined.select(
        F.col("_key").alias("key"),
        F.when(passes, F.col("_value")).otherwise(value).alias("value"),
        F.col("_headers").alias("headers"),
    )


if __name__ == "__main__":
    sys.exit(run_job(enrich))
