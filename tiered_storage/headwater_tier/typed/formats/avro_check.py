"""A kernel that checks an Avro datum against its schema, before fastavro reads it.

fastavro takes a negative index of a branch, any byte as a boolean, and as many items of no bytes as
a frame claims. The schema is a program: rows of (operation, first, count) over a list of children.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from headwater.columnar.decode_kernels import Int64, is_utf8, read_varint
from headwater.columnar.jit import kernel
from headwater_tier.typed.formats.avro_schema import AvroSchema, Node, kind_of

NOTHING, BOOLEAN, VARINT, FIXED, BYTES, TEXT, ENUM, RECORD, UNION, ARRAY, MAP = range(11)
_SCALARS = {
    "null": (NOTHING, 0),
    "boolean": (BOOLEAN, 0),
    "int": (VARINT, 0),
    "long": (VARINT, 0),
    "float": (FIXED, 4),
    "double": (FIXED, 8),
    "bytes": (BYTES, 0),
    "string": (TEXT, 0),
}
Array = Any  # a numpy array: numba infers the type


@kernel
def block_items(data: Array, at: int, end: int) -> tuple[Int64, Int64]:
    """(items of the block of an array or map at `at`, the position of the first one or -1)."""
    count, at = read_varint(data, at, end)
    if at >= 0 and count < 0:
        count = -count
        _, at = read_varint(data, at, end)  # the block's size in bytes
    if at < 0 or count < 0 or count > end - at:  # an item has a byte at least
        return 0, -1
    return count, at


@kernel
def end_of_bytes(data: Array, size: int, is_text: bool, at: int, end: int) -> int:
    """The position behind `size` bytes at `at`; -1 if they are not there, or are no text."""
    if size < 0 or size > end - at or (is_text and not is_utf8(data, at, at + size)):
        return -1
    return at + size


@kernel
def end_of_datum(  # noqa: C901 - a case per type
    program: Array, children: Array, node: int, data: Array, at: int, end: int
) -> int:
    """The position behind the datum; -1 if it is none."""
    operation, first, count = program[node, 0], program[node, 1], program[node, 2]
    if operation == NOTHING:
        return at
    if operation == FIXED:
        return at + first if first <= end - at else -1
    if operation == BOOLEAN:
        return at + 1 if at < end and data[at] <= 1 else -1
    if operation == RECORD:
        for i in range(first, first + count):
            at = end_of_datum(program, children, children[i], data, at, end)
            if at < 0:
                return -1
        return at
    if operation in (ARRAY, MAP):
        while True:
            items, at = block_items(data, at, end)
            if at < 0 or items == 0:
                return at
            for _ in range(items):
                if operation == MAP:
                    size, at = read_varint(data, at, end)
                    at = -1 if at < 0 else end_of_bytes(data, size, True, at, end)
                if at >= 0:
                    at = end_of_datum(program, children, children[first], data, at, end)
                if at < 0:
                    return -1
    value, at = read_varint(data, at, end)
    if at < 0 or operation == VARINT:
        return at
    if operation in (BYTES, TEXT):
        return end_of_bytes(data, value, operation == TEXT, at, end)
    if value < 0 or value >= count:
        return -1
    if operation == ENUM:
        return at
    return end_of_datum(program, children, children[first + value], data, at, end)


class AvroCheck:
    """The check of one schema, which has no recursion (`avro_schema.column_type` refuses it)."""

    def __init__(self, schema: AvroSchema) -> None:
        self._program: list[tuple[int, int, int]] = []
        self._children: list[int] = []
        self._root = self._compile(schema, schema.parsed)
        self._arrays = (
            np.array(self._program, np.int64),
            np.array(self._children or [0], np.int64),
        )

    def is_datum(self, blob: bytes) -> bool:
        """True when the blob is one datum and nothing else."""
        data = np.frombuffer(blob, np.uint8)
        return bool(end_of_datum(*self._arrays, self._root, data, 0, len(blob)) == len(blob))

    def _compile(self, schema: AvroSchema, node: Node) -> int:
        node = schema.resolved(node)
        kind = kind_of(node)
        if kind in _SCALARS:
            return self._add(*_SCALARS[kind])
        if kind == "fixed":
            return self._add(FIXED, node["size"])
        if kind == "enum":
            return self._add(ENUM, 0, len(node["symbols"]))
        if kind == "union":
            parts = [self._compile(schema, one) for one in node]
        elif kind == "record":
            parts = [self._compile(schema, field["type"]) for field in node["fields"]]
        else:
            parts = [self._compile(schema, node["items" if kind == "array" else "values"])]
        first = len(self._children)
        self._children.extend(parts)
        operation = {"union": UNION, "record": RECORD, "array": ARRAY, "map": MAP}[kind]
        return self._add(operation, first, len(parts))

    def _add(self, operation: int, first: int, count: int = 0) -> int:
        self._program.append((operation, first, count))
        return len(self._program) - 1
