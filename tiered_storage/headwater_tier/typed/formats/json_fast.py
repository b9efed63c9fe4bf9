"""The kernel's way for JSON rows: the columns as its tables, compiled when the schema changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from headwater_tier.typed.formats.json_kernel import decode_objects
from headwater_tier.typed.formats.slots import (
    KIND_BIGINT,
    KIND_BOOLEAN,
    KIND_DOUBLE,
    KIND_NONE,
    KIND_STRUCT,
    KIND_TEXT,
    Blobs,
    Slots,
    columns_of,
)

_KINDS = (KIND_BIGINT, KIND_BOOLEAN, KIND_DOUBLE, KIND_TEXT, KIND_STRUCT)


class JsonFast:
    """Fills the slots of scalars and structs (`headwater_tier.typed.formats.rows.FastRows`)."""

    def __init__(self, fitted: Callable[[pa.Schema], pa.Schema] | None = None) -> None:
        """`fitted`: the schema with the types that values are fitted to."""
        self._fitted = fitted
        self._schema: pa.Schema | None = None

    def fill(self, blobs: Blobs, rows: Any, slots: Slots, schema: pa.Schema) -> None:
        """See the port."""
        if self._schema is None or not self._schema.equals(schema):
            self._compile(schema)
        decode_objects(
            blobs.data, blobs.begins, blobs.ends, rows,
            len(schema), self._names, self._offsets, self._tree,
            *slots.flat(), slots.is_done,
        )  # fmt: skip

    def _compile(self, schema: pa.Schema) -> None:
        columns = columns_of(schema if self._fitted is None else self._fitted(schema))
        names = [column.name.encode() for column in columns]
        self._names = np.frombuffer(b"".join(names), np.uint8)
        self._offsets = np.cumsum([0, *map(len, names)], dtype=np.int64)
        self._tree = np.array(
            [
                (column.kind if column.kind in _KINDS else KIND_NONE, column.first, column.count)
                for column in columns
            ],
            np.int64,
        )
        self._schema = schema
