"""Columns as the kernels fill them, a slot per row and column, and as Arrow arrays after.

A slot is 8 bytes: an integer, a double's bits, or where a text begins: at or above 0 in the blobs,
below 0 in the decoder's own words (the names of enums).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from headwater.columnar.buffers import binary, validity
from headwater.columnar.decode_kernels import copy_bytes
from headwater.columnar.jit import kernel
from headwater_tier.typed.formats.column_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    STRING,
    TIMESTAMP,
    is_variant,
)

KIND_NONE, KIND_BIGINT, KIND_DOUBLE, KIND_BOOLEAN, KIND_TEXT, KIND_BYTES = range(6)
KIND_TIMESTAMP, KIND_DATE, KIND_STRUCT, KIND_RAW = 6, 7, 8, 9
"""KIND_RAW is a JSON kernel's alone: the slot says where the value's text is."""
_KINDS = {
    BIGINT: KIND_BIGINT,
    DOUBLE: KIND_DOUBLE,
    BOOLEAN: KIND_BOOLEAN,
    STRING: KIND_TEXT,
    BINARY: KIND_BYTES,
    TIMESTAMP: KIND_TIMESTAMP,
    DATE: KIND_DATE,
}
Array = Any  # a numpy array: numba infers the type


@dataclass(frozen=True, slots=True)
class Blobs:
    """The blobs of a block of rows for the kernels."""

    data: Array
    begins: Array
    ends: Array
    is_null: Array
    """A byte per row."""

    def __len__(self) -> int:
        return len(self.begins)


def blobs_of(block: pa.Array) -> Blobs:
    """A binary array, without a copy of its bytes."""
    valid = validity(block)
    is_null = np.zeros(len(block), np.uint8) if not len(valid) else 1 - valid
    _, offsets, data = binary(block, len(block))
    return Blobs(data, offsets[:-1], offsets[1:], is_null)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table, or a field of a struct; each has slots of its own."""

    name: str
    type: pa.DataType
    kind: int
    first: int = 0
    """Of a struct: the number of its first field; the others follow."""
    count: int = 0


def columns_of(schema: pa.Schema) -> list[Column]:
    """The table's columns, then the fields of the structs, level by level."""
    waiting = list(schema)
    found: list[Column] = []
    for field in waiting:
        is_struct = pa.types.is_struct(field.type) and not is_variant(field)
        if is_struct:
            first, count = len(waiting), field.type.num_fields
            waiting.extend(field.type)
            found.append(Column(field.name, field.type, KIND_STRUCT, first, count))
        else:
            kind = _KINDS.get(field.type, KIND_NONE)
            found.append(Column(field.name, field.type, kind))
    return found


class Slots:
    """The slots of a block of rows."""

    def __init__(self, schema: pa.Schema, rows: int) -> None:
        self._columns = columns_of(schema)
        count = len(self._columns)
        self.values = np.zeros((count, rows), np.int64)
        self.sizes = np.zeros((count, rows), np.int32)
        self.is_valid = np.zeros((count, rows), np.uint8)
        self.is_done = np.zeros(rows, np.uint8)
        """1 for rows that a kernel has decoded."""
        self.objects: dict[int, list[Any]] = {}
        """Values of columns of KIND_NONE, as pyarrow takes them, a row each."""
        self._words: list[bytes] = []
        self._top = len(schema)

    def flat(self) -> tuple[Array, Array, Array]:
        """Values, sizes and validity: one column's slots behind the other's.

        A kernel indexes them by column * rows + row: a slice per value would cost more than it.
        """
        return self.values.reshape(-1), self.sizes.reshape(-1), self.is_valid.reshape(-1)

    def add_words(self, words: bytes) -> int:
        """Keep the decoder's own texts; the position of the first byte, in slots -1 - position."""
        self._words.append(words)
        return sum(map(len, self._words[:-1]))

    def undo(self, row: int) -> None:
        """Make a row one that is not done."""
        self.is_done[row] = 0
        self.is_valid[:, row] = 0
        self.sizes[:, row] = 0
        for values in self.objects.values():
            values[row] = None

    def arrays(self, data: Array) -> list[pa.Array]:
        """The columns; those that no kernel fills, and rows that are not done, are null."""
        return [self._array(at, data) for at in range(self._top)]

    def _array(self, at: int, data: Array) -> pa.Array:
        found, rows = self._columns[at], len(self.is_done)
        column, kind = found.type, found.kind
        nulls = rows - int(np.count_nonzero(self.is_valid[at]))
        if at in self.objects:
            return pa.array(self.objects[at], column)
        if kind == KIND_NONE or nulls == rows:
            return pa.nulls(rows, column)
        if kind == KIND_STRUCT:
            children = [self._array(found.first + n, data) for n in range(found.count)]
            mask = pa.array(self.is_valid[at] == 0) if nulls else None
            return pa.StructArray.from_arrays(children, fields=list(column), mask=mask)
        bits = None
        if nulls:
            bits = pa.py_buffer(np.packbits(self.is_valid[at], bitorder="little"))
        buffers = [bits, *self._buffers(at, kind, data)]
        return pa.Array.from_buffers(column, rows, buffers, nulls)

    def _buffers(self, at: int, kind: int, data: Array) -> list[pa.Buffer]:
        values = self.values[at]
        if kind in (KIND_TEXT, KIND_BYTES):
            offsets = np.zeros(len(values) + 1, np.int32)
            np.cumsum(self.sizes[at], out=offsets[1:])
            texts = np.empty(offsets[-1], np.uint8)
            words = np.frombuffer(b"".join(self._words), np.uint8)
            gather(data, words, values, offsets, texts)
            return [pa.py_buffer(offsets), pa.py_buffer(texts)]
        if kind == KIND_BOOLEAN:
            return [pa.py_buffer(np.packbits(values.astype(np.uint8), bitorder="little"))]
        return [pa.py_buffer(values.astype(np.int32) if kind == KIND_DATE else values)]


@kernel
def gather(data: Array, words: Array, begins: Array, offsets: Array, texts: Array) -> None:
    """Copy the texts that begin in `data` or `words` one behind the other. Not by slices: numba
    compiles their error messages too, which takes seconds."""
    for row in range(len(begins)):
        to, end = offsets[row], offsets[row + 1]
        begin = begins[row]
        if end == to:
            continue
        if begin >= 0:
            copy_bytes(texts, to, data, begin, end - to)
        else:
            copy_bytes(texts, to, words, -begin - 1, end - to)
