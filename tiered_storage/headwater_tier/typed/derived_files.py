"""Writes the data files of derived tables, with statistics that no reader can be misled by.

Columns that hold NaN in a file have no min and max there: writers leave NaN out of them, and Spark,
to which NaN is the largest number, would skip the file.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater_tier.delta import TableAccessError, filesystem, local_path, may_use_threads
from headwater_tier.schema import timestamp_text
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.derived_table import WrittenFile, floats_in

ROW_GROUP_ROWS = 131_072
COMPRESSION = "lz4"
STATS_STRING_MAX = 64
"""Longer strings get no min and max: a cut maximum would be too small."""
STATS_COLUMNS_MAX = 32
DICTIONARY_ROWS_MIN = 1_000
_TIMESTAMP_US_MIN = -62_135_596_800_000_000
_TIMESTAMP_US_MAX = 253_402_300_799_999_000


def write_derived(place: TableLocation, rows: pa.Table, attempt: UUID) -> WrittenFile:
    """Write rows as one durable file in the table's folder. Raises TableAccessError."""
    path = f"part-{attempt}.parquet"
    files = filesystem(place)
    unsafe = _with_nan(rows)
    names = [name for name in rows.schema.names if name not in unsafe]
    try:
        with pq.ParquetWriter(
            path,
            rows.schema,
            filesystem=files,
            compression=COMPRESSION,
            use_dictionary=_dictionary_columns(rows),
            write_statistics=[n for n in names if not _has_nested_floats(rows.schema.field(n))],
        ) as writer:
            writer.write_table(rows, row_group_size=ROW_GROUP_ROWS)
        size_bytes = files.get_file_info(path).size
        _make_durable(place, path)
    except (OSError, pa.ArrowException) as error:
        raise TableAccessError(f"writing {path} into {place.uri} failed: {error}") from error
    return WrittenFile(path, size_bytes, rows.num_rows, stats_json(rows))


def read_derived(place: TableLocation, path: str, columns: Sequence[str] | None = None) -> pa.Table:
    """The rows of a file. Raises TableAccessError."""
    try:
        with pq.ParquetFile(filesystem(place).open_input_file(path)) as source:
            found = source.schema_arrow.names
            wanted = None if columns is None else [name for name in columns if name in found]
            return source.read(columns=wanted, use_threads=may_use_threads(place))
    except (OSError, pa.ArrowException) as error:
        raise TableAccessError(f"{place.uri}/{path} cannot be read: {error}") from error


def in_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """A file's rows in the table's schema of today; columns that it lacks are null."""
    columns = []
    for field in schema:
        if field.name not in rows.schema.names:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = rows.column(field.name)
        columns.append(column if column.type == field.type else _widened(column, field.type))
    return pa.table(columns, schema=schema)


def _widened(column: pa.ChunkedArray, type_: pa.DataType) -> pa.ChunkedArray:
    return pa.chunked_array([c.cast(type_) for c in column.chunks], type_)


def stats_columns(schema: pa.Schema) -> list[str]:
    """The columns whose statistics readers may use: none that may hold NaN, no nested ones.

    Goes into `delta.dataSkippingStatsColumns`, by which other writers go too.
    """
    plain = [f.name for f in schema if _is_bounded(f.type) and not pa.types.is_floating(f.type)]
    return [name for name in plain if name.replace("_", "").isalnum()][:STATS_COLUMNS_MAX]


def stats_json(rows: pa.Table) -> str:
    """The statistics of an AddAction, in Delta's JSON."""
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for name in stats_columns(rows.schema):
        column = rows.column(name)
        nulls[name] = column.null_count
        low, high = _bounds(column)
        if low is not None and high is not None:
            lows[name], highs[name] = low, high
    return json.dumps(
        {"numRecords": rows.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}
    )


def _is_bounded(type_: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type_)
        or pa.types.is_string(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_timestamp(type_)
    )


def _bounds(column: pa.ChunkedArray) -> tuple[Any, Any]:
    if pa.types.is_timestamp(column.type):
        found = pc.min_max(column.cast(pa.int64()))
        low, high = found["min"].as_py(), found["max"].as_py()
        if low is None or low < _TIMESTAMP_US_MIN or high > _TIMESTAMP_US_MAX:
            return None, None
        return timestamp_text(low), timestamp_text(high + 999)  # cut to milliseconds: round up
    found = pc.min_max(column)
    try:
        return _plain(found["min"].as_py()), _plain(found["max"].as_py())
    except (ValueError, OverflowError):  # a date that Python's calendar does not have
        return None, None


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return value if len(value) <= STATS_STRING_MAX else None
    if isinstance(value, date) and not isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Decimal) else value


def _with_nan(rows: pa.Table) -> set[str]:
    """The flat columns that hold NaN."""
    return {
        field.name
        for field in rows.schema
        if pa.types.is_floating(field.type) and pc.any(pc.is_nan(rows.column(field.name))).as_py()
    }


def _has_nested_floats(field: pa.Field) -> bool:
    return pa.types.is_nested(field.type) and bool(floats_in(pa.schema([field])))


def _dictionary_columns(rows: pa.Table) -> list[str]:
    """Columns worth a dictionary: the partition, and strings with few values in a sample."""
    chosen = ["partition"]
    for field in rows.schema:
        if not pa.types.is_string(field.type) or rows.num_rows < DICTIONARY_ROWS_MIN:
            continue
        sample = rows.column(field.name).slice(0, DICTIONARY_ROWS_MIN)
        if pc.count_distinct(sample).as_py() * 4 <= DICTIONARY_ROWS_MIN:
            chosen.append(field.name)
    return chosen


def _make_durable(place: TableLocation, path: str) -> None:
    folder = local_path(place.uri)
    if folder is None:
        return
    for target in (os.path.join(folder, path), folder):
        handle = os.open(target, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
