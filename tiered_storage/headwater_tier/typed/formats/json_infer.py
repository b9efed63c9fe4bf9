"""The columns that JSON values ask for, when a topic declares no schema.

The first value that is not null decides a column's type: whole number bigint, fraction double,
text string, object struct, array list. Null, an empty array and an empty object decide nothing.
A later fraction does not fit a bigint: the same log must give the same table, whatever the chunks.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import pyarrow as pa

from headwater_tier.typed.formats.column_types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    STRING,
    column_name,
    list_of,
    lookup_key,
    widened,
)
from headwater_tier.typed.formats.json_fit import two_keys_of_one_column
from headwater_tier.typed.formats.misfit import NotFittingError
from headwater_tier.typed.quarantine_reasons import Reason

DEPTH_MAX = 50
"""Of columns in columns."""
_SCALARS = {bool: BOOLEAN, int: BIGINT, float: DOUBLE, Decimal: DOUBLE, str: STRING}


def inferred(value: Any, depth: int = 0) -> pa.DataType | None:
    """The type that the value asks for; None if it does not tell. Raises NotFittingError."""
    if depth > DEPTH_MAX:
        detail = f"it nests more than {DEPTH_MAX} levels: keep it as a VARIANT"
        raise NotFittingError(Reason.DOES_NOT_FIT, detail)
    if type(value) is dict:
        fields: dict[str, pa.Field] = {}
        for key, item in value.items():
            kind = inferred(item, depth + 1)
            if kind is None:
                continue
            if lookup_key(key) in fields:
                raise two_keys_of_one_column("", key, column_name(key))
            fields[lookup_key(key)] = pa.field(column_name(key), kind)
        return pa.struct(list(fields.values())) if fields else None
    if type(value) is list:
        element = _joined(inferred(item, depth + 1) for item in value)
        return None if element is None else list_of(element)
    return _SCALARS.get(type(value))


def _joined(kinds: Iterable[pa.DataType | None]) -> pa.DataType | None:
    """One type for an array's items: they differ in what they tell."""
    joined: pa.DataType | None = None
    for kind in kinds:
        joined = promoted(joined, kind)
    return joined


def promoted(first: pa.DataType | None, second: pa.DataType | None) -> pa.DataType | None:
    """The type that holds both, for a new generation of the table: bigint and double are double.

    Types that nothing holds both stay the first: the others' rows go to quarantine.
    """
    if first is None or second is None:
        return second if first is None else first
    types = pa.types
    if {first, second} == {BIGINT, DOUBLE}:
        return DOUBLE
    if types.is_struct(first) and types.is_struct(second):
        names = {lookup_key(field.name): field for field in second}
        known = [
            field.with_type(promoted(field.type, names[lookup_key(field.name)].type))
            if lookup_key(field.name) in names
            else field
            for field in first
        ]
        return widened(pa.struct(known), second)
    if types.is_list(first) and types.is_list(second):
        return list_of(promoted(first.value_type, second.value_type))
    return first
