"""A topic as one DataFrame: history from Delta at a pinned version, the tail from the brokers.

The same rows as `format("headwater")`; Spark's own Parquet reader reads the tiered ones. The tail
begins at the tiered ends of the pinned version: no gap and no overlap while tiering continues. It
is read of the table's topic only: one that was created again under the name has other records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's custom

from headwater.security.store_options import without_secrets
from headwater_spark.options import EARLIEST, LATEST, READ_COMMITTED, servers_of, store_options
from headwater_spark.source.broker_metadata import Brokers
from headwater_spark.source.cold_files import ColdFiles, cold_files
from headwater_spark.source.columns import HEADERS_DDL, KAFKA_DDL
from headwater_spark.source.derived_read import derived_table
from headwater_spark.source.positions import offsets_to_json
from headwater_spark.task_security import task_security
from headwater_tier.delta import LogTable, table_exists
from headwater_tier.table_location import locate_table

PartitionId = tuple[str, int]
LOG = "log"
"""The kind of table that holds records as they are."""


def table(
    spark: SparkSession,
    topic: str,
    *,
    bootstrap_servers: str | None = None,
    kind: str = LOG,
    include_headers: bool = False,
    tables_uri: str | None = None,
    storage_options: dict[str, str] | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """The topic's committed rows in the columns of the source; the bounds are fixed by this call.

    `kind="typed"`, `"latest"` or `"quarantine"`: the derived table at its newest version, without
    the tail. `options` are the connection's, of a reader: `kafka.*` (`cluster.spark_options()`).
    Secrets among `storage_options` are references (`env:NAME`, `file:PATH`); Spark itself reaches
    the store by its own settings (`spark.hadoop.fs.*`). Needs a session with Delta
    (`headwater_spark.session`).
    """
    given = store_options(storage_options or {})
    servers = servers_of(bootstrap_servers, options or {})
    connection = {**(options or {}), "kafka.bootstrap.servers": servers}
    brokers = Brokers(servers, security=task_security(connection))
    try:
        found = brokers.topics([topic])[topic]
        location = locate_table(brokers, found, tables_uri=tables_uri, storage_options=given)
        if kind != LOG:
            return derived_table(spark, location, kind)
        history: ColdFiles | None = None
        if table_exists(location):
            history = cold_files(location, LogTable(location).snapshot)
        partitions = [(topic, p) for p in range(found.partitions)]
        earliest = brokers.list_offsets(dict.fromkeys(partitions, EARLIEST))
        latest = brokers.list_offsets(dict.fromkeys(partitions, LATEST), READ_COMMITTED)
    finally:
        brokers.close()
    tail_of = {**connection, "headwater.topic.id": found.topic_id}
    tail = _tail(spark, topic, tail_of, include_headers, history, earliest, latest)
    if history is None:
        return tail
    return _history(spark, topic, include_headers, history, earliest).unionAll(tail)


def _tail(
    spark: SparkSession,
    topic: str,
    connection: Mapping[str, str],
    include_headers: bool,
    history: ColdFiles | None,
    earliest: dict[PartitionId, int],
    latest: dict[PartitionId, int],
) -> DataFrame:
    starts = {
        tp: max(start, history.range_of(tp[1])[1] if history else 0)
        for tp, start in earliest.items()
    }
    ends = {tp: max(end, starts[tp]) for tp, end in latest.items()}
    return (
        spark.read.format("headwater")
        .options(**connection)
        .option("subscribe", topic)
        .option("startingOffsets", _json(starts))
        .option("endingOffsets", _json(ends))
        .option("includeHeaders", str(include_headers).lower())
        .option("headwater.use.table", "false")
        .load()
    )


def _history(
    spark: SparkSession,
    topic: str,
    include_headers: bool,
    history: ColdFiles,
    earliest: dict[PartitionId, int],
) -> DataFrame:
    rows = (
        spark.read.format("delta")
        .options(**without_secrets(history.location.storage_options))
        .option("versionAsOf", history.version)
        .load(history.location.uri)
    )
    columns = [c.split()[0] for c in KAFKA_DDL.split(",")]
    if include_headers:
        columns.append(HEADERS_DDL.split()[0])
    special = {
        "topic": F.lit(topic),
        "timestampType": F.col("timestamp_type").cast("int"),
    }
    chosen = rows.select(*(special.get(name, F.col(name)).alias(name) for name in columns))
    kept = _above_start(history, earliest)
    return chosen if kept is None else chosen.where(kept)


def _above_start(history: ColdFiles, earliest: dict[PartitionId, int]) -> Column | None:
    """A condition that drops rows below the log start: retention removes whole files only."""
    condition: Column | None = None
    for (_, partition), start in sorted(earliest.items()):
        first = max(start, history.range_of(partition)[0])
        if first > 0:
            keep = (F.col("partition") != partition) | (F.col("offset") >= first)
            condition = keep if condition is None else condition & keep
    return condition


def _json(offsets: dict[PartitionId, int]) -> str:
    return json.dumps(offsets_to_json(offsets))
