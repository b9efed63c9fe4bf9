"""Options of SQL tables: `CREATE TABLE flights USING headwater OPTIONS (...)`.

Spark 4.2 keeps a table's options in its catalog, but passes a Python data source only the options
of the statement (`SELECT ... FROM flights WITH (...)`). It does pass the table's schema, with the
metadata of each column. So the schema of a table that is created gets the options as metadata of
one column, and readers and writers find them there. Pure.

One table serves both sides: its readers pass over the options of the sink, and its writers over
those of the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from headwater.errors import UsageError
from headwater_spark import kafka_options
from headwater_spark.options import SERVERS
from headwater_spark.sink.sink_options import SINK_NAMES, sink_options
from headwater_spark.source.source_options import SOURCE_NAMES, source_options

METADATA_KEY = "headwater.options"
CARRIER = "timestampType"
"""The column whose metadata holds the options: the one that queries select least, as a column's
metadata follows it into tables that are made from it."""
READ_ONLY_COLUMNS = ("offset", "timestamp", CARRIER)
"""The columns that the brokers set: NULL in an INSERT."""
PROVIDER = "provider"
"""A property of tables; only CREATE TABLE passes it to a data source."""
OPTION_PREFIX = "option."
"""Spark's prefix of the OPTIONS among a table's properties."""
STORAGE_PREFIX = "headwater.storage."
SUBSCRIPTIONS = ("subscribe", "subscribepattern", "assign")
NO_OPTIONS = (
    f"option {SERVERS[0]!r} is missing: give host:port[,host:port...]. Spark passes the options of"
    " a SQL table only if it was created without columns and without AS SELECT; else give them with"
    f" the statement: WITH (`{SERVERS[0]}` 'host:port', ...)"
)

_SINK_NAMES = {n.lower() for n in (*SINK_NAMES, *kafka_options.SINK_WITHOUT_EFFECT)}
_SOURCE_NAMES = {n.lower() for n in (*SOURCE_NAMES, *kafka_options.SOURCE_WITHOUT_EFFECT)}


def is_create_table(given: Mapping[str, str]) -> bool:
    """True when Spark asks for the schema of a table that it is about to create."""
    return PROVIDER in given


def created_options(given: Mapping[str, str]) -> dict[str, str]:
    """The checked OPTIONS of a CREATE TABLE, from the table's properties. Raises UsageError."""
    at = len(OPTION_PREFIX)
    properties = {name.lower(): str(value) for name, value in given.items()}
    options = {n[at:]: v for n, v in properties.items() if n.startswith(OPTION_PREFIX)}
    options.pop("path", None)
    for name in options:
        if name.startswith(STORAGE_PREFIX):
            raise UsageError(
                f"option {name!r} may be a secret, and everyone who sees a table sees its options:"
                " give it with the statement, WITH (...), or in the executors' environment"
            )
    # What a batch read refuses may be right for readStream.table: "startingOffsets" latest.
    refusals = [r for r in (_refusal(options, streaming) for streaming in (False, True)) if r]
    if len(refusals) > 1:
        raise refusals[0]
    sink_options(sink_given(options, {}))
    return options


def _refusal(options: Mapping[str, str], streaming: bool) -> UsageError | None:
    try:
        source_options(source_given(options, {}), streaming=streaming)
    except UsageError as refusal:
        return refusal
    return None


def source_given(stored: Mapping[str, str] | None, given: Mapping[str, str]) -> dict[str, str]:
    """A reader's options: the table's `stored` ones, under those that the statement gives."""
    options = _of_table(stored, given, _SINK_NAMES - _SOURCE_NAMES)
    topic = (stored or {}).get("topic")
    if topic is not None and not any(name in options for name in SUBSCRIPTIONS):
        options["subscribe"] = topic
    return options


def sink_given(stored: Mapping[str, str] | None, given: Mapping[str, str]) -> dict[str, str]:
    """A writer's options: the table's `stored` ones, under those that the statement gives."""
    options = _of_table(stored, given, _SOURCE_NAMES - _SINK_NAMES)
    topics = [topic for topic in (stored or {}).get("subscribe", "").split(",") if topic.strip()]
    if len(topics) == 1:
        options.setdefault("topic", topics[0].strip())
    return options


def _of_table(
    stored: Mapping[str, str] | None, given: Mapping[str, str], others: set[str]
) -> dict[str, str]:
    if not stored and not given:
        raise UsageError(NO_OPTIONS)
    kept = {name: value for name, value in (stored or {}).items() if name not in others}
    return kept | {name.lower(): str(value) for name, value in given.items()}


def stored_options(metadata: Mapping[str, Mapping[str, Any]]) -> dict[str, str] | None:
    """A table's options from the metadata of its columns, by name; None for any other schema.

    A DataFrame made from a table keeps metadata too: only one with all columns is the table.
    """
    found = metadata.get(CARRIER, {}).get(METADATA_KEY)
    if found is None or not all(name in metadata for name in READ_ONLY_COLUMNS):
        return None
    return {str(name): str(value) for name, value in found.items()}


def writable(names: Iterable[str]) -> list[str]:
    """The columns of a table that an INSERT may set."""
    return [name for name in names if name not in READ_ONLY_COLUMNS]


def without_read_only(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of an INSERT in the sink's columns. Raises UsageError for a value that brokers set.

    The check comes before the batch is sent.
    """
    for batch in batches:
        for name in READ_ONLY_COLUMNS:
            if batch.column(name).null_count < batch.num_rows:
                raise UsageError(
                    f"the brokers set column {name!r}: leave it out, as in"
                    " INSERT INTO t (key, value) ..."
                )
        yield batch.select(writable(batch.schema.names))
