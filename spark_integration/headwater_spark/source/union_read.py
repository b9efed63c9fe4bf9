"""A topic as one DataFrame: history from Delta at a pinned version, the tail from the brokers.

The same rows as `format("headwater")`; Spark's own Parquet reader reads the tiered ones. The tail
begins at the tiered ends of the pinned version: no gap and no overlap while tiering continues. It
is read of the table's topic only: one that was created again under the name has other records.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

from pyspark.sql import DataFrame, SparkSession

from headwater.security.store_options import without_secrets
from headwater_spark.options import servers_of, store_options
from headwater_spark.source.cold_files import ColdFiles
from headwater_spark.source.columns import HEADERS_DDL, KAFKA_DDL
from headwater_spark.source.derived_read import derived_table
from headwater_spark.source.open_topics import OPEN_TOPICS, PartitionId, Place
from headwater_spark.source.positions import offsets_to_json
from headwater_spark.task_security import task_security

_BESIDE = ThreadPoolExecutor(2, thread_name_prefix="headwater-union")
"""Opens the table in the JVM while brokers are asked."""
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
    place = Place(servers, topic, task_security(connection), tables_uri, given)
    if kind != LOG:
        with OPEN_TOPICS.use(place) as open_topic:
            location = open_topic.find()
        return derived_table(spark, location, kind)
    loading: Future[DataFrame] | None = None
    with OPEN_TOPICS.use(place) as open_topic:
        history = open_topic.history(open_topic.find())
        if history is not None:
            loading = _BESIDE.submit(_history, spark, topic, include_headers, history)
        earliest, latest = open_topic.offsets()
        topic_id = open_topic.topic_id
    tail_of = {**connection, "headwater.topic.id": topic_id}
    tail = _tail(spark, topic, tail_of, include_headers, history, earliest, latest)
    if history is None or loading is None:
        return tail
    kept = _above_start(history, earliest)
    rows = loading.result()
    return (rows.where(kept) if kept else rows).unionAll(tail)


def _tail(
    spark: SparkSession,
    topic: str,
    connection: Mapping[str, str],
    include_headers: bool,
    history: ColdFiles | None,
    earliest: Mapping[PartitionId, int],
    latest: Mapping[PartitionId, int],
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
    spark: SparkSession, topic: str, include_headers: bool, history: ColdFiles
) -> DataFrame:
    """The table's rows in the source's columns. By SQL's text: each call on a column object is some
    round trips to the JVM, and they were half of a read's time."""
    columns = [c.split()[0] for c in KAFKA_DDL.split(",")]
    if include_headers:
        columns.append(HEADERS_DDL.split()[0])
    special = {
        "topic": f"'{topic}' AS topic",
        "timestampType": "CAST(timestamp_type AS INT) AS timestampType",
    }
    rows = (
        spark.read.format("delta")
        .options(**without_secrets(history.location.storage_options))
        .option("versionAsOf", history.version)
        .load(history.location.uri)
    )
    return rows.selectExpr(*(special.get(name, f"`{name}`") for name in columns))


def _above_start(history: ColdFiles, earliest: Mapping[PartitionId, int]) -> str:
    """A condition that drops rows below the log start, as retention removes whole files only;
    empty where nothing is below."""
    kept = []
    for (_, partition), start in sorted(earliest.items()):
        first = max(start, history.range_of(partition)[0])
        if first > 0:
            kept.append(f"(partition <> {partition} OR offset >= {first})")
    return " AND ".join(kept)


def _json(offsets: dict[PartitionId, int]) -> str:
    return json.dumps(offsets_to_json(offsets))
