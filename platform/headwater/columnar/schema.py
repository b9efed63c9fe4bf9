"""Arrow schemas of records: the columns of Spark's Kafka source, and those of the log table.

Both share `partition`, `offset`, `timestamp`, `key`, `value` and `headers` with equal types, so one
decoder fills any mix of their columns.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

TIMESTAMP = pa.timestamp("us", tz="UTC")
HEADERS = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
)
"""Record headers; null if there are none. Ordered; keys may repeat, values may be null (KIP-82)."""

KAFKA_COLUMNS = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
    "headers",
)
"""The columns of Spark's Kafka source, in its order."""

LOG_TABLE_COLUMNS = (
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
    "timestamp_raw",
    "headers_raw",
)
"""The columns of a topic's log table (docs/delta-tables.md)."""

_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP,
    "timestampType": pa.int32(),
    "timestamp_type": pa.int8(),
    "headers": HEADERS,
    "leader_epoch": pa.int32(),
    "timestamp_raw": pa.int64(),
    "headers_raw": pa.binary(),
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of these columns in this order, all nullable as Spark declares them.

    Raises ValueError for an unknown column.
    """
    unknown = [name for name in columns if name not in _TYPES]
    if unknown:
        raise ValueError(f"unknown columns {unknown}; there are {sorted(_TYPES)}")
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


KAFKA_SCHEMA = arrow_schema(KAFKA_COLUMNS)
LOG_TABLE_SCHEMA = pa.schema(
    [
        pa.field(name, _TYPES[name], nullable=name not in ("partition", "offset"))
        for name in LOG_TABLE_COLUMNS
    ]
)
