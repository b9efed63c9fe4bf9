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
def end_of_scalar(operation: int, argument: int, data: Array, at: int, end: int) -> int:
    """The position behind a value without parts; -1 if it is none."""
    if operation == NOTHING:
        return at
    if operation == FIXED:
        return at + argument if argument <= end - at else -1
    if operation == BOOLEAN:
        return at + 1 if at < end and data[at] <= 1 else -1
    value, at = read_varint(data, at, end)
    if at < 0 or operation == VARINT:
        return at
    if operation == ENUM:
        return at if 0 <= value < argument else -1
    return end_of_bytes(data, value, operation == TEXT, at, end)


@kernel
def item_at(operation: int, left: Int64, data: Array, at: int, end: int) -> tuple[Int64, Int64]:
    """(items of the block from the next one on, or 0 at the end; position of the next item, or
    -1), with `left` items of the block still to come."""
    if left <= 0:
        left, at = block_items(data, at, end)
    if at >= 0 and left > 0 and operation == MAP:
        size, at = read_varint(data, at, end)
        if at >= 0:
            at = end_of_bytes(data, size, True, at, end)
    return left, at


@kernel
def end_of_datum(program: Array, children: Array, root: int, data: Array, at: int, end: int) -> int:
    """The position behind the datum; -1 if it is none.

    It keeps a stack: a function that calls itself would crash out of numba's cache.
    """
    nodes = np.empty(len(program) + 1, np.int64)
    # Of a record the fields that are done, of an array or map the items of the block to come.
    progress = np.zeros(len(program) + 1, np.int64)
    nodes[0], top = root, 0
    while top >= 0:
        node = nodes[top]
        operation, first, count = program[node, 0], program[node, 1], program[node, 2]
        child = np.int64(-1)
        if operation == RECORD:
            if progress[top] < count:
                child = children[first + progress[top]]
                progress[top] += 1
        elif operation in (ARRAY, MAP):
            left, at = item_at(operation, progress[top], data, at, end)
            if left > 0:
                progress[top] = left - 1
                child = children[first]
        elif operation == UNION:
            branch, at = read_varint(data, at, end)
            if at < 0 or branch < 0 or branch >= count:
                return -1
            nodes[top], progress[top] = children[first + branch], 0
            continue
        else:
            at = end_of_scalar(operation, first + count, data, at, end)
        if at < 0:
            return -1
        if child < 0:
            top -= 1
        else:
            top += 1
            nodes[top], progress[top] = child, 0
    return at


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
