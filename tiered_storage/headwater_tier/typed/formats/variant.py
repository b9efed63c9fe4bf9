"""JSON values as VARIANT: Parquet's variant encoding, version 1, unshredded, as Spark reads it.

A value is two binaries: the metadata, a dictionary of all keys, and the value, which names keys by
their place in it. Numbers are exact: integers and decimals of up to 38 digits, else a double.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headwater_tier.typed.formats.column_types import VALUE_COLUMN, variant_field
from headwater_tier.typed.formats.json_fit import exact_double
from headwater_tier.typed.formats.json_values import exact_value
from headwater_tier.typed.formats.misfit import NotFittingError, out_of_range
from headwater_tier.typed.quarantine_reasons import Reason

VERSION = 1
SORTED_STRINGS = 1 << 4
PRIMITIVE, SHORT_STRING, OBJECT, ARRAY = range(4)
"""Basic types: the lower two bits of a value's first byte."""
NULL, TRUE, FALSE, INT8, INT16, INT32, INT64, DOUBLE = range(8)
DECIMAL4, DECIMAL8, DECIMAL16 = 8, 9, 10
STRING = 16
SHORT_STRING_BYTES_MAX = 63
SMALL_COUNT_MAX = 255
DECIMAL_DIGITS_MAX = 38
VARIANT_BYTES_MAX = 16 * 1024 * 1024
"""Spark reads no larger one."""
DEPTH_MAX = 200
_INTEGERS = ((INT8, "<b", 8), (INT16, "<h", 16), (INT32, "<i", 32), (INT64, "<q", 64))


class VariantRows:
    """Reads rows of one VARIANT (`headwater_tier.typed.formats.rows.RowReader`)."""

    schema = pa.schema([variant_field(VALUE_COLUMN)])

    def read(self, blob: bytes) -> dict[str, Any]:
        """The row. Raises NotFittingError."""
        metadata, value = variant_of(exact_value(blob))
        return {VALUE_COLUMN: {"metadata": metadata, "value": value}}


def variant_of(value: Any) -> tuple[bytes, bytes]:
    """(metadata, value) of an exact JSON value. Raises NotFittingError."""
    keys: set[str] = set()
    _collect(value, keys, 0)
    words = sorted(key.encode() for key in keys)
    ids = {word.decode(): number for number, word in enumerate(words)}
    metadata, encoded = _metadata(words), _encoded(value, ids)
    if max(len(metadata), len(encoded)) > VARIANT_BYTES_MAX:
        detail = (
            f"a VARIANT holds {VARIANT_BYTES_MAX} bytes, not {max(len(metadata), len(encoded))}"
        )
        raise NotFittingError(Reason.DOES_NOT_FIT, detail)
    return metadata, encoded


def _collect(value: Any, keys: set[str], depth: int) -> None:
    if depth > DEPTH_MAX:
        raise NotFittingError(Reason.DOES_NOT_FIT, f"it nests more than {DEPTH_MAX} levels")
    if type(value) is dict:
        keys.update(value)
        for item in value.values():
            _collect(item, keys, depth + 1)
    elif type(value) is list:
        for item in value:
            _collect(item, keys, depth + 1)


def _metadata(words: list[bytes]) -> bytes:
    size = _width(max(sum(map(len, words)), len(words)))
    header = VERSION | SORTED_STRINGS | (size - 1) << 6
    return b"".join([bytes([header]), _unsigned(len(words), size), _offsets(words, size), *words])


def _encoded(value: Any, ids: dict[str, int]) -> bytes:
    kind = type(value)
    if kind is dict:
        return _object(value, ids)
    if kind is list:
        return _array([_encoded(item, ids) for item in value])
    if kind is str:
        return _string(value.encode())
    if kind is int:
        return _integer(value)
    if kind is Decimal:
        return _decimal(value)
    return _primitive(NULL if value is None else TRUE if value else FALSE)


def _object(value: dict[str, Any], ids: dict[str, int]) -> bytes:
    """Fields stand in the order of their names' bytes, which is that of their ids."""
    fields = sorted((ids[key], _encoded(item, ids)) for key, item in value.items())
    parts = [part for _, part in fields]
    offset_size = _width(sum(map(len, parts)))
    id_size = _width(fields[-1][0] if fields else 0)
    is_large = len(fields) > SMALL_COUNT_MAX
    header = (offset_size - 1) | (id_size - 1) << 2 | is_large << 4
    return b"".join(
        [
            bytes([OBJECT | header << 2]),
            _unsigned(len(fields), 4 if is_large else 1),
            *(_unsigned(number, id_size) for number, _ in fields),
            _offsets(parts, offset_size),
            *parts,
        ]
    )


def _array(parts: list[bytes]) -> bytes:
    offset_size = _width(sum(map(len, parts)))
    is_large = len(parts) > SMALL_COUNT_MAX
    header = (offset_size - 1) | is_large << 2
    count = _unsigned(len(parts), 4 if is_large else 1)
    return b"".join([bytes([ARRAY | header << 2]), count, _offsets(parts, offset_size), *parts])


def _string(text: bytes) -> bytes:
    if len(text) <= SHORT_STRING_BYTES_MAX:
        return bytes([SHORT_STRING | len(text) << 2]) + text
    return _primitive(STRING) + _unsigned(len(text), 4) + text


def _integer(value: int) -> bytes:
    for kind, form, bits in _INTEGERS:
        if -(1 << bits - 1) <= value < 1 << bits - 1:
            return _primitive(kind) + struct.pack(form, value)
    return _decimal(Decimal(value))


def _decimal(value: Decimal) -> bytes:
    """A decimal as written; with an exponent or more digits than a decimal has, a double."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # JSON has no NaN
    if len(digits) <= DECIMAL_DIGITS_MAX and -DECIMAL_DIGITS_MAX <= exponent <= 0:
        unscaled = int("".join(map(str, digits)))
        places = max(len(digits), -exponent)  # Spark reads no scale beyond the kind's precision
        size = 4 if places <= 9 else 8 if places <= 18 else 16
        kind = {4: DECIMAL4, 8: DECIMAL8, 16: DECIMAL16}[size]
        number = (-unscaled if sign else unscaled).to_bytes(size, "little", signed=True)
        return _primitive(kind) + bytes([-exponent]) + number
    double = exact_double(value)
    if double is None:
        raise out_of_range("the value", value, "VARIANT")
    return _primitive(DOUBLE) + struct.pack("<d", double)


def _primitive(kind: int) -> bytes:
    return bytes([PRIMITIVE | kind << 2])


def _offsets(parts: list[bytes], size: int) -> bytes:
    """Where each part begins, and where the last one ends."""
    at, found = 0, [_unsigned(0, size)]
    for part in parts:
        at += len(part)
        found.append(_unsigned(at, size))
    return b"".join(found)


def _unsigned(value: int, size: int) -> bytes:
    return value.to_bytes(size, "little")


def _width(value: int) -> int:
    """Bytes that an unsigned integer needs: 1 to 4. Spark's limit on sizes keeps it below 4."""
    return max(1, (min(value, (1 << 32) - 1).bit_length() + 7) // 8)
