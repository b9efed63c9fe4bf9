"""The kernel's way for Avro records: the record as its program, compiled per schema."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from headwater_tier.typed.formats import avro_kernel as op
from headwater_tier.typed.formats.avro_schema import (
    AvroSchema,
    Node,
    column_type,
    kind_of,
    logical_of,
)
from headwater_tier.typed.formats.column_types import DATE, TIMESTAMP, lookup_key
from headwater_tier.typed.formats.json_fit import Fit
from headwater_tier.typed.formats.misfit import NotFittingError
from headwater_tier.typed.formats.slots import KIND_STRUCT, Blobs, Column, Slots, columns_of

_OPERATIONS = {
    "null": op.NOTHING,
    "boolean": op.BOOLEAN,
    "int": op.INTEGER,
    "long": op.INTEGER,
    "float": op.SINGLE,
    "double": op.DOUBLE,
    "bytes": op.BYTES,
    "string": op.TEXT,
    "fixed": op.FIXED,
    "enum": op.ENUM,
}
_NO_FACTOR = 0
Step = tuple[int, int, int, int, int]
"""A row of the program (`avro_kernel`)."""


class AvroFast:
    """Fills the slots of scalars and records (`headwater_tier.typed.formats.rows.FastRows`)."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._for: pa.Schema | None = None
        self._program: Any = None
        self._symbols: list[bytes] = []
        self._converts: dict[int, Fit] = {}
        """By column: from the bytes of a decimal."""

    def fill(self, blobs: Blobs, rows: Any, slots: Slots, schema: pa.Schema) -> None:
        """See the port."""
        if self._for is None or not self._for.equals(schema):
            self._compile(schema)
        if self._program is None:
            return
        first = slots.add_words(b"".join(self._symbols))
        sizes = np.array([len(symbol) for symbol in self._symbols] or [0], np.int64)
        positions = first + np.cumsum(sizes) - sizes
        words = np.stack([-1 - positions, sizes], axis=1)
        op.decode_records(
            blobs.data, blobs.begins, blobs.ends, rows, self._program, words, self._columns,
            *slots.flat(), slots.is_done,
        )  # fmt: skip
        for column, convert in self._converts.items():
            found = slots.objects.setdefault(column, [None] * len(blobs))
            for row in rows[(slots.is_valid[column, rows] & slots.is_done[rows]) == 1]:
                begin = slots.values[column, row]
                try:
                    data = blobs.data[begin : begin + slots.sizes[column, row]].tobytes()
                    found[row] = convert(data)
                except NotFittingError:
                    slots.undo(row)  # the reader tells what is wrong with the row

    def _compile(self, schema: pa.Schema) -> None:
        """The program; None where a field is a list, say, or its column has another type."""
        self._for, self._program, self._symbols, self._converts = schema, None, [], {}
        columns = columns_of(schema)
        root = self._schema.resolved(self._schema.parsed)
        program = self._record(root, columns, 0, len(schema))
        if program is None:
            return
        filled = [column for _, column, _, _, _ in program if column >= 0]
        self._columns = np.array(filled, np.int64)
        self._program = np.array(program, np.int64).reshape(len(program), op.PROGRAM_WIDTH)

    def _record(
        self, node: Node, columns: list[Column], first: int, count: int
    ) -> list[Step] | None:
        """The steps of a record's fields, whose columns are `count` from `first` on."""
        numbers = {lookup_key(columns[at].name): at for at in range(first, first + count)}
        program: list[Step] = []
        for field in node["fields"]:
            steps = self._field(field["type"], columns, numbers.pop(lookup_key(field["name"]), -1))
            if steps is None:
                return None
            program.extend(steps)
        return program

    def _field(self, node: Node, columns: list[Column], at: int) -> list[Step] | None:
        node, null = self._schema.resolved(node), -1
        if kind_of(node) == "union":
            kinds = [kind_of(self._schema.resolved(one)) for one in node]
            if len(kinds) != 2 or kinds.count("null") != 1:
                return None
            null = kinds.index("null")
            node = self._schema.resolved(node[1 - null])
        if kind_of(node) == "record":
            if at >= 0 and columns[at].kind != KIND_STRUCT:
                return None
            first, count = (columns[at].first, columns[at].count) if at >= 0 else (0, 0)
            fields = self._record(node, columns, first, count)
            return None if fields is None else [(op.RECORD, at, null, len(fields), 0), *fields]
        if at >= 0 and pa.types.is_decimal(columns[at].type):
            logical = logical_of(node, "")
            if logical is None or logical.convert is None or logical.column != columns[at].type:
                return None
            self._converts[at] = logical.convert
            is_fixed = kind_of(node) == "fixed"
            return [
                (op.FIXED, at, null, node["size"], 0) if is_fixed else (op.BYTES, at, null, 0, 0)
            ]
        step = self._step(node, columns[at].type if at >= 0 else None)
        return None if step is None else [(step[0], at, null, *step[1:])]

    def _step(self, node: Node, column: pa.DataType | None) -> tuple[int, int, int] | None:
        """(operation, argument, first word) of a field; None if it has none."""
        kind = kind_of(node)
        operation = _OPERATIONS.get(kind)
        if operation is None or (column is None) != (operation == op.NOTHING):
            return None
        if column is None:
            return op.NOTHING, 0, 0
        if not column.equals(column_type(self._schema, node, "")):
            return None
        logical = logical_of(node, "")
        if logical is not None and column.equals(TIMESTAMP):
            factor = 1 if logical.convert is None else _factor(logical.convert)
            return None if factor == _NO_FACTOR else (op.INSTANT, factor, 0)
        if logical is not None and column.equals(DATE):
            return op.DAY, 0, 0
        if logical is not None and logical.convert is not None:
            return None
        if operation == op.ENUM:
            first = len(self._symbols)
            self._symbols.extend(symbol.encode() for symbol in node["symbols"])
            return op.ENUM, len(node["symbols"]), first
        return operation, node["size"] if operation == op.FIXED else 0, 0


def _factor(convert: Any) -> int:
    """Microseconds of one unit; _NO_FACTOR if the unit is shorter."""
    return int(convert(1))
