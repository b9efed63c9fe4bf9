"""From JSON values to what a column's type takes: a function per type, compiled once per schema.

Numbers must be held exactly: an integer in a double, a decimal. A fraction of up to 17 digits is
the double nearest to it, as every JSON writer of doubles means it; a longer one is out of range
unless a double is exactly it.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from typing import Any

import pyarrow as pa

from headwater_tier.typed.formats.column_types import lookup_key
from headwater_tier.typed.formats.json_values import json_text
from headwater_tier.typed.formats.misfit import (
    NotFittingError,
    does_not_fit,
    out_of_range,
    shown,
)
from headwater_tier.typed.quarantine_reasons import Reason

BIGINT_MAX = (1 << 63) - 1
BIGINT_MIN = -(1 << 63)
EXACT_DOUBLE_DIGITS = 17
"""Digits after which a double names a decimal no more."""
DECIMAL_CHARS_MAX = 100
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DECIMAL_TEXT = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?")
JSON_TEXT = pa.large_string()
"""Stands for a string column that takes any JSON value, as its text."""
Fit = Callable[[Any], Any]


class NeedsExactError(Exception):
    """The value came by the fast way, and only the exact way can tell whether it fits."""


class UnknownKeyError(Exception):
    """An object has a key without a column: an inferred schema may grow."""


def fit_of(kind: pa.DataType, path: str, is_open: bool) -> Fit:
    """The function for a column at `path`. It raises NotFittingError and NeedsExactError, and
    UnknownKeyError if `is_open`; without, keys without a column are passed over."""
    types = pa.types
    if types.is_struct(kind):
        return _struct_fit(kind, path, is_open)
    if types.is_map(kind):
        return _map_fit(fit_of(kind.item_type, f"{path}.*", is_open), kind, path)
    if types.is_list(kind):
        return _list_fit(fit_of(kind.value_type, f"{path}[]", is_open), kind, path)
    if types.is_decimal(kind):
        return lambda value: fit_decimal(_decimal_value(value, kind, path), kind, path)
    scalar = {
        pa.bool_(): _boolean,
        pa.int64(): _bigint,
        pa.float64(): _double,
        pa.string(): _string,
        JSON_TEXT: _text,
        pa.binary(): _binary,
        pa.date32(): _date,
    }.get(kind, _timestamp if types.is_timestamp(kind) else None)
    if scalar is None:
        raise TypeError(f"no JSON fits a column {path} of type {kind}")
    return lambda value: None if value is None else scalar(value, path)


def fit_decimal(value: Decimal | None, kind: pa.DataType, path: str) -> Decimal | None:
    """The value with exactly the type's scale. Raises NotFittingError, and never rounds."""
    if value is None:
        return None
    with localcontext(prec=kind.precision) as context:
        context.clear_flags()
        try:
            exact = value.quantize(Decimal(1).scaleb(-kind.scale))
        except InvalidOperation:
            raise out_of_range(path, value, kind) from None
    if exact != value:
        raise out_of_range(path, value, kind)
    return exact


def exact_double(value: Decimal) -> float | None:
    """The double that the decimal names (see the module); None if there is none."""
    number = float(value)
    if number in (float("inf"), float("-inf")):
        return None
    digits = str(value.as_tuple().digits and "".join(map(str, value.as_tuple().digits))).strip("0")
    if len(digits) <= EXACT_DOUBLE_DIGITS:
        return number if number or not digits else None
    return number if Decimal(number) == value else None


def exact_integer(value: Decimal) -> int | None:
    """The integer that the decimal is; None if it is none, or has more than 40 digits."""
    if value.adjusted() > 40 or value != value.to_integral_value():
        return None
    return int(value)


def _boolean(value: Any, path: str) -> bool:
    if value is True or value is False:
        return bool(value)
    raise does_not_fit(path, value, "boolean")


def _bigint(value: Any, path: str) -> int:
    kind = type(value)
    if kind is Decimal:
        if value.adjusted() > 40:
            raise out_of_range(path, value, "bigint")
        whole = exact_integer(value)
        if whole is None:
            raise does_not_fit(path, value, "bigint")
        value, kind = whole, int
    if kind is int:
        if BIGINT_MIN <= value <= BIGINT_MAX:
            return int(value)
        raise out_of_range(path, value, "bigint")
    if kind is float:
        raise NeedsExactError
    raise does_not_fit(path, value, "bigint")


def _double(value: Any, path: str) -> float:
    kind = type(value)
    if kind is float:
        return float(value)
    if kind is int:
        number = float(value)
        if int(number) != value:
            raise out_of_range(path, value, "double")
        return number
    if kind is Decimal:
        found = exact_double(value)
        if found is None:
            raise out_of_range(path, value, "double")
        return found
    raise does_not_fit(path, value, "double")


def _string(value: Any, path: str) -> str:
    if type(value) is str:
        return value
    raise does_not_fit(path, value, "string")


def _binary(value: Any, path: str) -> bytes:
    try:
        return base64.b64decode(_string(value, path), validate=True)
    except (binascii.Error, ValueError):
        raise NotFittingError(Reason.DOES_NOT_FIT, f"{path}: {shown(value)} is no base64") from None


def _date(value: Any, path: str) -> int:
    try:
        return date.fromisoformat(_string(value, path)).toordinal() - _EPOCH_DAY
    except ValueError:
        raise does_not_fit(path, value, "date (as 2026-01-31)") from None


def _timestamp(value: Any, path: str) -> int:
    """RFC 3339: without a zone it is no instant."""
    try:
        instant = datetime.fromisoformat(_string(value, path))
        if instant.tzinfo is None:
            raise ValueError
        return (instant - _EPOCH) // timedelta(microseconds=1)
    except ValueError:
        kind = "timestamp (as 2026-01-31T12:00:00Z)"
        raise does_not_fit(path, value, kind) from None


def _decimal_value(value: Any, kind: pa.DataType, path: str) -> Decimal | None:
    if value is None or type(value) is Decimal:
        return value
    if type(value) is int:
        return Decimal(value)
    if type(value) is float:
        raise NeedsExactError
    is_number = type(value) is str and len(value) <= DECIMAL_CHARS_MAX
    if is_number and _DECIMAL_TEXT.fullmatch(value):
        return Decimal(value)
    raise does_not_fit(path, value, kind)


def _struct_fit(kind: pa.DataType, path: str, is_open: bool) -> Fit:
    dot = f"{path}." if path else ""
    fits = {field.name: fit_of(field.type, f"{dot}{field.name}", is_open) for field in kind}
    names = {lookup_key(name): name for name in fits}
    known = {name: (name, fit) for name, fit in fits.items()}

    def fit_other(key: str, value: Any, row: dict[str, Any]) -> None:
        """A key that is not its column's name letter by letter, or has no column."""
        name = names.get(lookup_key(key))
        if name is None:
            if is_open and value is not None:
                raise UnknownKeyError
            return
        if name in row:
            raise two_keys_of_one_column(path, key, name)
        row[name] = fits[name](value)

    def fit(value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        if type(value) is not dict:
            raise does_not_fit(path or "the value", value, "struct")
        row: dict[str, Any] = {}
        for key, item in value.items():
            found = known.get(key)
            if found is None:
                fit_other(key, item, row)
            else:
                if found[0] in row:
                    raise two_keys_of_one_column(path, key, found[0])
                row[found[0]] = found[1](item)
        return row

    return fit


def two_keys_of_one_column(path: str, key: str, name: str) -> NotFittingError:
    """Keys that differ in case only, or in letters that no column's name may have."""
    where = f"{path}.{name}" if path else name
    detail = f"{where}: the key {shown(key)} is a second one for this column"
    return NotFittingError(Reason.DUPLICATE_KEY, detail)


def _list_fit(item: Fit, kind: pa.DataType, path: str) -> Fit:
    def fit(value: Any) -> list[Any] | None:
        if value is None:
            return None
        if type(value) is not list:
            raise does_not_fit(path, value, kind)
        return [item(one) for one in value]

    return fit


def _map_fit(item: Fit, kind: pa.DataType, path: str) -> Fit:
    def fit(value: Any) -> list[tuple[str, Any]] | None:
        if value is None:
            return None
        if type(value) is not dict:
            raise does_not_fit(path, value, kind)
        return [(key, item(one)) for key, one in value.items()]

    return fit


def _text(value: Any, _path: str) -> str:
    """A whole value as JSON text."""
    if _has_float(value):
        raise NeedsExactError
    return json_text(value)


def _has_float(value: Any) -> bool:
    if type(value) is dict:
        return any(map(_has_float, value.values()))
    return any(map(_has_float, value)) if type(value) is list else type(value) is float
