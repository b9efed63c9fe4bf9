"""The columns of `format("headwater")`: those of Spark's Kafka source."""

from __future__ import annotations

import pyarrow as pa

from headwater.columnar.schema import KAFKA_COLUMNS, arrow_schema
from headwater.errors import UsageError

KAFKA_DDL = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT,"
    " timestamp TIMESTAMP, timestampType INT"
)
HEADERS_DDL = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"


def source_ddl(include_headers: bool) -> str:
    """The schema in Spark's DDL when the user gives none."""
    return f"{KAFKA_DDL}, {HEADERS_DDL}" if include_headers else KAFKA_DDL


def checked_schema(schema: pa.Schema) -> pa.Schema:
    """A user's `.schema(...)`, checked: any of Kafka's columns in any order, with their types.

    Tasks produce only these columns: `.schema("value BINARY")` is the fast way to read values.
    Raises UsageError.
    """
    for name in schema.names:
        if name not in KAFKA_COLUMNS:
            raise UsageError(
                f"a headwater source has no column {name!r}; there are {', '.join(KAFKA_COLUMNS)}"
            )
    expected = arrow_schema(schema.names)
    for given, wanted in zip(schema, expected, strict=True):
        if not _same_type(given.type, wanted.type):
            raise UsageError(
                f"column {given.name!r} of a headwater source is {wanted.type}, not {given.type}:"
                " read it with its type and cast it in Spark"
            )
    return schema


def _same_type(given: pa.DataType, wanted: pa.DataType) -> bool:
    """True for types that differ at most in the nullability of nested fields."""
    if pa.types.is_list(wanted):
        return pa.types.is_list(given) and _same_type(given.value_type, wanted.value_type)
    if pa.types.is_struct(wanted):
        return (
            pa.types.is_struct(given)
            and [f.name for f in given] == [f.name for f in wanted]
            and all(_same_type(g.type, w.type) for g, w in zip(given, wanted, strict=True))
        )
    return bool(given.equals(wanted))
