"""Logical types of Avro, Kafka Connect and Debezium: the columns that they become.

Instants become timestamps in UTC, in microseconds: finer ones are cut. Times of day and local
timestamps, which are no instants, stay the numbers that they are.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headwater_tier.typed.formats.column_types import DATE, STRING, TIMESTAMP, decimal_type
from headwater_tier.typed.formats.json_fit import BIGINT_MAX, BIGINT_MIN, Fit
from headwater_tier.typed.formats.misfit import does_not_fit, out_of_range

CONNECT_DECIMAL = "org.apache.kafka.connect.data.Decimal"
DAYS_MAX = date.max.toordinal() - date(1970, 1, 1).toordinal()
DAYS_MIN = date.min.toordinal() - date(1970, 1, 1).toordinal()
_AVRO_INSTANTS = {
    "timestamp-millis": 1000,
    "timestamp-micros": 1,
    "timestamp-nanos": -1000,
}
_CONNECT_INSTANTS = {
    "org.apache.kafka.connect.data.Timestamp": 1000,
    "io.debezium.time.Timestamp": 1000,
    "io.debezium.time.MicroTimestamp": 1,
    "io.debezium.time.NanoTimestamp": -1000,
}
"""Name -> factor to microseconds; negative: divisor."""
_CONNECT_DATES = ("org.apache.kafka.connect.data.Date", "io.debezium.time.Date")
ZONED = "io.debezium.time.ZonedTimestamp"


@dataclass(frozen=True, slots=True)
class Logical:
    """A logical type: its column, and the function from the physical value (never None)."""

    column: pa.DataType
    convert: Fit | None = None


def avro_logical(name: str, physical: str, node: Mapping[str, Any], path: str) -> Logical | None:
    """The logical type of an Avro schema; None when the physical one is all there is."""
    if name in _AVRO_INSTANTS and physical == "long":
        return _instant(_AVRO_INSTANTS[name], path)
    if name == "date" and physical == "int":
        return Logical(DATE, _days(path))
    if name == "uuid" and physical == "string":
        return Logical(STRING)
    if name == "uuid" and physical == "fixed" and node.get("size") == 16:
        return Logical(STRING, lambda value: str(uuid.UUID(bytes=value)))
    if name == "decimal" and physical in ("bytes", "fixed"):
        precision, scale = node.get("precision"), node.get("scale", 0)
        if isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision:
            return decimal_logical(precision, scale, path)
    return None


def connect_logical(name: str, physical: str, path: str) -> Logical | None:
    """The logical type that Connect and Debezium name for an integer; None if it is none."""
    if name in _CONNECT_INSTANTS and physical in ("long", "int64"):
        return _instant(_CONNECT_INSTANTS[name], path)
    if name in _CONNECT_DATES and physical in ("int", "int32"):
        return Logical(DATE, _days(path))
    return None


def decimal_logical(precision: int, scale: int, path: str) -> Logical:
    """An unscaled big-endian integer in bytes."""
    column = decimal_type(precision, scale)
    limit: int = 10**column.precision

    def convert(value: bytes) -> Decimal:
        unscaled = int.from_bytes(value, "big", signed=True)
        if len(value) > 40 or abs(unscaled) >= limit or scale > column.scale:
            raise out_of_range(path, f"{len(value)} bytes unscaled", column)
        sign, digits = (1 if unscaled < 0 else 0), tuple(map(int, str(abs(unscaled))))
        return Decimal((sign, digits, -scale))

    return Logical(column, convert)


def instant_fit(factor: int, path: str) -> Fit | None:
    """From an integer of another unit to microseconds, within 64 bits."""
    if factor == 1:
        return None
    if factor < 0:
        return lambda value: value // -factor

    def convert(value: int) -> int:
        micros = value * factor
        if not BIGINT_MIN <= micros <= BIGINT_MAX:
            raise out_of_range(path, value, "timestamp")
        return micros

    return convert


def _instant(factor: int, path: str) -> Logical:
    return Logical(TIMESTAMP, instant_fit(factor, path))


def _days(path: str) -> Fit:
    def convert(value: int) -> int:
        if not DAYS_MIN <= value <= DAYS_MAX:
            raise does_not_fit(path, value, "date of the years 1 to 9999")
        return value

    return convert
