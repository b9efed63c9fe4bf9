"""The kernel's way for flat Avro records: the record as its program, compiled per schema."""

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
from headwater_tier.typed.formats.columns import DATE, TIMESTAMP, lookup_key
from headwater_tier.typed.formats.flat_slots import Blobs, Slots

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


class AvroFast:
    """Fills the slots of flat records (`headwater_tier.typed.formats.rows.FastRows`)."""

    def __init__(self, schema: AvroSchema) -> None:
        self._schema = schema
        self._for: pa.Schema | None = None
        self._program: Any = None
        self._symbols: list[bytes] = []

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

    def _compile(self, schema: pa.Schema) -> None:
        """The program; None where a field is not flat, or its column has another type."""
        self._for, self._program, self._symbols = schema, None, []
        numbers = {lookup_key(field.name): at for at, field in enumerate(schema)}
        program: list[tuple[int, int, int, int, int]] = []
        for field in self._schema.resolved(self._schema.parsed)["fields"]:
            column = numbers.pop(lookup_key(field["name"]), -1)
            kind = schema.field(column).type if column >= 0 else None
            step = self._step(field["type"], kind)
            if step is None:
                return
            operation, null, argument, words = step
            program.append((operation, column, null, argument, words))
        columns = [column for _, column, _, _, _ in program if column >= 0]
        self._columns = np.array(columns, np.int64)
        self._program = np.array(program, np.int64).reshape(len(program), op.PROGRAM_WIDTH)

    def _step(self, node: Node, column: pa.DataType | None) -> tuple[int, int, int, int] | None:
        """(operation, index of null, argument, first word) of a field; None if it has none."""
        node, null = self._schema.resolved(node), -1
        if kind_of(node) == "union":
            kinds = [kind_of(self._schema.resolved(one)) for one in node]
            if len(kinds) != 2 or kinds.count("null") != 1:
                return None
            null = kinds.index("null")
            node = self._schema.resolved(node[1 - null])
        kind = kind_of(node)
        operation = _OPERATIONS.get(kind)
        if operation is None or (column is None) != (operation == op.NOTHING):
            return None
        if column is None:
            return op.NOTHING, null, 0, 0
        if not column.equals(column_type(self._schema, node, "")):
            return None
        logical = logical_of(node, "")
        if logical is not None and column.equals(TIMESTAMP):
            factor = 1 if logical.convert is None else _factor(logical.convert)
            return None if factor == _NO_FACTOR else (op.INSTANT, null, factor, 0)
        if logical is not None and column.equals(DATE):
            return op.DAY, null, 0, 0
        if logical is not None and logical.convert is not None:
            return None
        if operation == op.ENUM:
            first = len(self._symbols)
            self._symbols.extend(symbol.encode() for symbol in node["symbols"])
            return op.ENUM, null, len(node["symbols"]), first
        return operation, null, node["size"] if operation == op.FIXED else 0, 0


def _factor(convert: Any) -> int:
    """Microseconds of one unit; _NO_FACTOR if the unit is shorter."""
    return int(convert(1))
