"""Arrow and pandas tables to record batches, and fetches to Arrow. Needs the `arrow` extra.

`headwater.columnar` encodes rows column by column: nothing here loops over rows in Python. Compiled
kernels take a second to load: they are imported where nothing else will do.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.client.core.completed_fetch import CompletedFetch
from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.client.key_partitions import key_partitions
from headwater.client.option_rules import as_integer
from headwater.client.producer_options import Partitioner
from headwater.client.topic_routes import ROUND_ROBIN, STICKY
from headwater.columnar.produce import produced_batches
from headwater.columnar.schema import HEADERS, KAFKA_COLUMNS, arrow_schema
from headwater.errors import UsageError

TABLE_BATCH_BYTES = 512 * 1024
"""Size of the batches that `send_table` builds: larger than those of `send`."""
SLICE_ROWS = 262_144
"""Rows encoded at a time: this bounds memory, and sending begins before encoding ends."""


@dataclass(frozen=True, slots=True)
class TablePlan:
    """The columns that become key, value, headers, timestamp and partition."""

    key: str | None
    value: str | Sequence[str] | None
    headers: str | None
    timestamp: str | int | None
    partition: int | str | None


def as_table(table: Any) -> pa.Table:
    """`table` as a pyarrow Table. Raises UsageError."""
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if hasattr(table, "__dataframe__") or hasattr(table, "__arrow_c_stream__"):
        if type(table).__module__.startswith("pandas"):
            return pa.Table.from_pandas(table, preserve_index=False)
        return pa.table(table)
    raise UsageError(
        "send_table takes a pyarrow Table, a frame of pandas or polars, a relation of DuckDB, or "
        f"what else Arrow can read, not {type(table)}"
    )


def table_batches(
    table: Any,
    plan: TablePlan,
    *,
    partitions: int,
    now_ms: int,
    compression: str | None,
    batch_bytes_max: int,
    partitioner: Partitioner | str | None = None,
) -> Iterator[tuple[int, bytearray, int]]:
    """(partition, built batch, number of records); a partition's rows are in the table's order.

    `partitioner`: the producer's option, which places rows as it does single records.
    """
    rows = as_table(table)
    _check_columns(rows, plan)
    for turn, start in enumerate(range(0, rows.num_rows, SLICE_ROWS)):
        part = rows.slice(start, SLICE_ROWS).combine_chunks()
        key = None if plan.key is None else _blob(_column(part, plan.key), plan.key)
        value = _value(part, plan)
        headers = None if plan.headers is None else _column(part, plan.headers).cast(HEADERS)
        times = _times(part, plan.timestamp, now_ms)
        where = _partitions(part, plan, key, partitions, turn, partitioner)
        for partition, chosen in _groups(where, part.num_rows):
            for data, count in _encoded(
                _take(key, chosen),
                _take(value, chosen),
                times if isinstance(times, int) else _take(times, chosen),
                _take(headers, chosen),
                compression,
                batch_bytes_max,
            ):
                yield partition, data, count


def _encoded(
    key: Any, value: Any, times: Any, headers: Any, compression: str | None, bytes_max: int
) -> Iterator[tuple[bytearray, int]]:
    """(built batch, number of records) of one partition's rows."""
    if headers is None:
        yield from produced_batches(
            key=key,
            value=value,
            timestamps_ms=times,
            compression=compression,
            batch_bytes_max=bytes_max,
        )
        return
    from headwater.columnar.encode import encode_rows  # noqa: PLC0415 - compiled

    for batch in encode_rows(
        key=key,
        value=value,
        timestamps_ms=times,
        headers=headers,
        compression=compression,
        batch_bytes_max=bytes_max,
    ):
        yield bytearray(batch.data), batch.record_count


def _check_columns(rows: pa.Table, plan: TablePlan) -> None:
    named = [plan.key, plan.headers]
    named += [plan.timestamp] if isinstance(plan.timestamp, str) else []
    named += [plan.partition] if isinstance(plan.partition, str) else []
    named += [plan.value] if isinstance(plan.value, str) else list(plan.value or ())
    missing = [name for name in named if name is not None and name not in rows.column_names]
    if missing:
        raise UsageError(
            f"the table has no column {', '.join(map(repr, missing))}; "
            f"it has {', '.join(rows.column_names)}"
        )


def _column(part: pa.Table, name: str) -> Any:
    column = part.column(name)
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _take(array: Any, chosen: Any) -> Any:
    """The chosen rows: a slice for (start, stop), else by index."""
    if array is None:
        return None
    if isinstance(chosen, tuple):
        return array.slice(chosen[0], chosen[1] - chosen[0])
    return array.take(chosen)


def _blob(array: Any, name: str) -> Any:
    """Bytes and text as they are, other plain values as text."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _blob(array.dictionary_decode(), name)
    is_blob = (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
    )
    if is_blob:
        return array
    if pa.types.is_null(kind):
        return pa.nulls(len(array), pa.binary())
    if pa.types.is_nested(kind):
        raise UsageError(f"column {name!r} is {kind}: give bytes, text or plain values")
    return array.cast(pa.string())


def _value(part: pa.Table, plan: TablePlan) -> Any:
    if isinstance(plan.value, str):
        return _blob(_column(part, plan.value), plan.value)
    names = plan.value
    if names is None:
        used = {plan.key, plan.headers, plan.timestamp, plan.partition}
        names = [name for name in part.column_names if name not in used]
    return json_rows(part, names)


def _times(part: pa.Table, timestamp: str | int | None, now_ms: int) -> Any:
    if timestamp is None:
        return now_ms
    if isinstance(timestamp, int):
        return timestamp
    column = _column(part, timestamp)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("ms", column.type.tz), safe=False)
    return column.cast(pa.int64())


def _partitions(
    part: pa.Table,
    plan: TablePlan,
    key: Any,
    partitions: int,
    turn: int,
    partitioner: Partitioner | str | None,
) -> Any:
    """A partition for all rows, or an array with one per row."""
    if isinstance(plan.partition, str):
        column = _column(part, plan.partition).cast(pa.int64())
        where = column.fill_null(0).to_numpy(zero_copy_only=False)
        if len(where) and (where.min() < 0 or where.max() >= partitions):
            raise UsageError(f"column {plan.partition!r} names partitions beyond {partitions - 1}")
        if not column.null_count:
            return where
        is_given = column.is_valid().to_numpy(zero_copy_only=False)
        return np.where(is_given, where, _chosen(part, key, partitions, turn, partitioner))
    if plan.partition is not None:
        if not 0 <= plan.partition < partitions:
            raise UsageError(f"partition {plan.partition}: the topic has {partitions}")
        return plan.partition
    return _chosen(part, key, partitions, turn, partitioner)


def _chosen(
    part: pa.Table, key: Any, partitions: int, turn: int, partitioner: Partitioner | str | None
) -> Any:
    """The partitioner's choice for each row."""
    rows = np.arange(part.num_rows)
    if callable(partitioner):
        blobs = [None] * len(rows) if key is None else key.cast(pa.large_binary()).to_pylist()
        return np.array([_asked(partitioner, blob, partitions) for blob in blobs], np.int64)
    if partitioner == ROUND_ROBIN:
        return (turn * SLICE_ROWS + rows) % partitions
    if key is not None and partitioner != STICKY:
        return key_partitions(key, partitions, turn % partitions)
    return rows * partitions // max(1, len(rows))


def _asked(partitioner: Partitioner, key: bytes | None, partitions: int) -> int:
    chosen = as_integer("partition", partitioner(key, partitions))
    if not 0 <= chosen < partitions:
        raise UnknownTopicOrPartitionError(
            f"the partitioner chose partition {chosen}: the topic has partitions 0 to "
            f"{partitions - 1}"
        )
    return chosen


def _groups(where: Any, count: int) -> Iterator[tuple[int, Any]]:
    """(partition, its rows in order): (start, stop) if they are adjacent, else their indices."""
    if isinstance(where, int):
        yield where, (0, count)
        return
    if not count:
        return
    is_sorted = bool((where[1:] >= where[:-1]).all())
    order = None if is_sorted else np.argsort(where, kind="stable")
    arranged = where if order is None else where[order]
    edges = np.flatnonzero(np.diff(arranged)) + 1
    starts = [0, *edges.tolist()]
    stops = [*edges.tolist(), count]
    for start, stop in zip(starts, stops, strict=True):
        rows = (start, stop) if order is None else pa.array(order[start:stop])
        yield int(arranged[start]), rows


def json_rows(part: pa.Table, names: Sequence[str]) -> Any:
    """A JSON object per row, with the keys in the order of `names`; a null stays a null.

    Numbers keep every digit. NaN and infinities become null, as JSON has neither. Times are ISO
    text. Nested columns are encoded in Python.
    """
    if not names:
        raise UsageError("send_table needs at least one value column")
    pieces: list[Any] = []
    for index, name in enumerate(names):
        lead = ("{" if index == 0 else ",") + json.dumps(name, ensure_ascii=False) + ":"
        pieces += [pa.scalar(lead), _json_cells(_column(part, name))]
    pieces += [pa.scalar("}"), pa.scalar("")]
    return pc.binary_join_element_wise(*pieces)


def _json_cells(array: Any) -> Any:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _json_cells(array.dictionary_decode())
    if pa.types.is_floating(kind):
        finite = pc.is_finite(array)
        text = pc.if_else(pc.fill_null(finite, False), array, None).cast(pa.string())
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        text = array.cast(pa.string())
    elif pa.types.is_nested(kind) or pa.types.is_null(kind):
        cells = [json.dumps(v, ensure_ascii=False, default=str) for v in array.to_pylist()]
        return pa.array(cells, pa.string())
    else:
        text = _quoted(array.cast(pa.string()))
    return pc.fill_null(text, "null")


def _quoted(text: Any) -> Any:
    controls = pc.match_substring_regex(text, r"[\x00-\x1f]")
    if pc.any(controls).as_py():
        cells = [None if v is None else json.dumps(v, ensure_ascii=False) for v in text.to_pylist()]
        return pa.array(cells, pa.string())
    escaped = pc.replace_substring(text, "\\", "\\\\")
    escaped = pc.replace_substring(escaped, '"', '\\"')
    quote = pa.scalar('"')
    return pc.binary_join_element_wise(quote, escaped, quote, "")


def fetch_to_arrow(topic: str, partition: int, fetch: CompletedFetch) -> Any:
    """The visible records of a fetch as a pyarrow.RecordBatch with Kafka's columns."""
    from headwater.columnar.decode import batches_to_arrow  # noqa: PLC0415 - compiled

    return batches_to_arrow(
        fetch.records,
        start_offset=fetch.start_offset,
        end_offset=max(fetch.next_offset, fetch.start_offset),
        topic=topic,
        partition=partition,
        aborted=fetch.aborted,
    )


def join_batches(parts: Sequence[Any]) -> Any:
    """One record batch of several; without any, an empty one."""
    if not parts:
        return pa.RecordBatch.from_pylist([], schema=arrow_schema(KAFKA_COLUMNS))
    return parts[0] if len(parts) == 1 else pa.concat_batches(parts)
