"""The kernel's way for JSON rows: the columns as its tables, compiled when the schema changes.

Of a column that the kernel has no slots for, an array say, it finds the text: orjson reads that,
and the same functions fit it as for whole rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from headwater_tier.typed.formats.json_fit import (
    JSON_TEXT,
    Fit,
    NeedsExactError,
    UnknownKeyError,
    fit_of,
)
from headwater_tier.typed.formats.json_kernel import decode_objects
from headwater_tier.typed.formats.json_values import exact_value, fast_value
from headwater_tier.typed.formats.misfit import NotFittingError
from headwater_tier.typed.formats.slots import (
    KIND_BIGINT,
    KIND_BOOLEAN,
    KIND_BYTES,
    KIND_DATE,
    KIND_DOUBLE,
    KIND_NONE,
    KIND_RAW,
    KIND_STRUCT,
    KIND_TEXT,
    KIND_TIMESTAMP,
    Blobs,
    Column,
    Slots,
    columns_of,
)

_KINDS = (KIND_BIGINT, KIND_BOOLEAN, KIND_DOUBLE, KIND_TEXT, KIND_STRUCT)
_NUMBERS = (KIND_TIMESTAMP, KIND_DATE)
"""Fitted values that a slot holds."""


class JsonFast:
    """Fills the slots of objects (`headwater_tier.typed.formats.rows.FastRows`)."""

    def __init__(
        self, is_open: bool = True, fitted: Callable[[pa.Schema], pa.Schema] | None = None
    ) -> None:
        """`is_open`: keys without a column are the reader's, also below arrays. `fitted`: the
        schema with the types that values are fitted to."""
        self._is_open = is_open
        self._fitted = fitted
        self._schema: pa.Schema | None = None
        self._fits: dict[int, tuple[Fit, bool]] = {}

    def fill(self, blobs: Blobs, rows: Any, slots: Slots, schema: pa.Schema) -> None:
        """See the port."""
        if self._schema is None or not self._schema.equals(schema):
            self._compile(schema)
        decode_objects(
            blobs.data, blobs.begins, blobs.ends, rows,
            len(schema), self._names, self._offsets, self._tree,
            *slots.flat(), slots.is_done,
        )  # fmt: skip
        for column, (fit, is_number) in self._fits.items():
            found = slots.objects.setdefault(column, [None] * len(blobs)) if not is_number else None
            for row in rows[(slots.is_valid[column, rows] & slots.is_done[rows]) == 1]:
                begin = slots.values[column, row]
                text = blobs.data[begin : begin + slots.sizes[column, row]].tobytes()
                try:
                    value = _fitted_value(text, fit)
                except (NotFittingError, UnknownKeyError):
                    slots.undo(row)  # the reader tells what is wrong with the row
                    continue
                if found is not None:
                    found[row] = value
                elif value is None:
                    slots.is_valid[column, row] = 0
                else:
                    slots.values[column, row] = value

    def _compile(self, schema: pa.Schema) -> None:
        columns = columns_of(schema if self._fitted is None else self._fitted(schema))
        names = [column.name.encode() for column in columns]
        self._names = np.frombuffer(b"".join(names), np.uint8)
        self._offsets = np.cumsum([0, *map(len, names)], dtype=np.int64)
        kinds = [_kernel_kind(column) for column in columns]
        tree = [(k, c.first, c.count) for k, c in zip(kinds, columns, strict=True)]
        self._tree = np.array(tree, np.int64)
        self._fits = {
            at: (fit_of(column.type, column.name, self._is_open), column.kind in _NUMBERS)
            for at, column in enumerate(columns)
            if kinds[at] == KIND_RAW
        }
        self._schema = schema


def _kernel_kind(column: Column) -> int:
    if column.kind in _KINDS:
        return column.kind
    if column.kind == KIND_BYTES or column.type.equals(JSON_TEXT):
        return KIND_NONE
    return KIND_RAW


def _fitted_value(text: bytes, fit: Fit) -> Any:
    try:
        return fit(fast_value(text))
    except NeedsExactError:
        return fit(exact_value(text))
