"""From a typed table's values (ints of microseconds, lists of pairs) to plain ones: datetimes,
objects, lists. Names and types are then those that the topic's typed table has."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa

Plain = Callable[[Any], Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_ZERO = date(1970, 1, 1)


def plain_row(columns: pa.Schema) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """The function from a decoder's row to an object. Fields without a value stay away."""
    plains = {field.name: _plain(field.type) for field in columns}

    def convert(row: dict[str, Any]) -> dict[str, Any]:
        return {
            name: value if value is None else plains[name](value) for name, value in row.items()
        }

    return convert


def _plain(kind: pa.DataType) -> Plain:
    types = pa.types
    if types.is_struct(kind):
        return plain_row(pa.schema(list(kind)))
    if types.is_list(kind):
        item = _plain(kind.value_type)
        return lambda values: [None if one is None else item(one) for one in values]
    if types.is_map(kind):
        item = _plain(kind.item_type)
        return lambda pairs: {str(k): None if v is None else item(v) for k, v in pairs}
    if types.is_timestamp(kind):
        return _instant
    if types.is_date(kind):
        return lambda days: (_DAY_ZERO + timedelta(days=days)).isoformat()
    if types.is_decimal(kind) and kind.scale == 0:
        return int
    return lambda value: value


def _instant(micros: int) -> Any:
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return micros
