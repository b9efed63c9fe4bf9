"""The decoder over a reader of rows: misfits, null blobs, a schema that grows, and a kernel for the
rows that it can prove.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from headwater_tier.kernels import KERNELS
from headwater_tier.typed.decoding import Decoded
from headwater_tier.typed.formats.column_types import conform
from headwater_tier.typed.formats.misfit import NotFittingError
from headwater_tier.typed.formats.slots import Blobs, Slots, blobs_of
from headwater_tier.typed.quarantine_reasons import LookupsSpentError, Misfit, Reason

BLOCK_ROWS = 16384
BLOCK_ROWS_MIN = 256
BLOCK_SLOTS = 1 << 19
"""Rows times columns of a block: it is some 8 MiB of slots, that stay in the processor's cache."""
FIRST_ROWS = 32
"""Of the first block: the kernel knows an inferred schema, and a frame's, after its rows."""
BLOCK_BYTES = 256 * 1024 * 1024
"""Of blobs: an Arrow array of their strings then stays below 2 GiB, expanded escapes too."""
IDLE_BLOCKS = 15
"""The kernel rests for so many blocks after one in which it proved hardly a row."""


UNFORESEEN = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RecursionError)
"""What code that reads strange bytes may raise: the row is quarantined with it, and no chunk fails.
SchemaUnavailableError is none of them."""


class RowReader(Protocol):
    """Reads one blob at a time."""

    @property
    def schema(self) -> pa.Schema:
        """The columns by now; a blob that is read may add some at the end."""

    def read(self, blob: bytes) -> dict[str, Any]:
        """The values by column name, as pyarrow takes them. Raises NotFittingError."""


class FastRows(Protocol):
    """Decodes what it can prove of a block, to the very values that the RowReader gives."""

    def fill(self, blobs: Blobs, rows: Any, slots: Slots, schema: pa.Schema) -> None:
        """Fill the slots of the rows of these numbers; those that are not done are the reader's."""


class RowsDecoder:
    """A decoder of rows (`headwater_tier.typed.decoding.BlobDecoder`)."""

    def __init__(self, reader: RowReader, fast: FastRows | None = None) -> None:
        self._reader = reader
        self._fast = fast
        self._idle_blocks = 0

    @property
    def schema(self) -> pa.Schema:
        """See the port."""
        return self._reader.schema

    def decode(self, blobs: pa.ChunkedArray) -> Decoded:
        """See the port."""
        misfits: list[Misfit] = []
        tables: list[pa.Table] = []
        at = 0
        for chunk in blobs.chunks:
            begin = 0
            while begin < len(chunk):
                block = block_at(chunk, begin, self._block_rows(at))
                tables.append(self._block(block, at, misfits))
                begin += len(block)
                at += len(block)
        misfits.sort(key=lambda misfit: misfit.row)
        return Decoded(joined(tables, self.schema), tuple(misfits))

    def _block_rows(self, rows_done: int) -> int:
        if self._fast is not None and not rows_done:
            return FIRST_ROWS
        return max(BLOCK_ROWS_MIN, min(BLOCK_ROWS, BLOCK_SLOTS // (len(self.schema) + 1)))

    def _block(self, block: pa.Array, first: int, misfits: list[Misfit]) -> pa.Table:
        schema = self.schema
        if self._fast is None or not len(schema) or self._idle_blocks or not KERNELS.are_ready:
            self._idle_blocks = max(0, self._idle_blocks - 1)
            return self._slow(block, np.arange(len(block)), first, misfits)
        blobs = blobs_of(block)
        slots = Slots(schema, len(block))
        slots.is_done[:] = blobs.is_null
        self._fast.fill(blobs, np.flatnonzero(blobs.is_null == 0), slots, schema)
        left = np.flatnonzero(slots.is_done == 0)
        if len(left) > 0.9 * len(block):
            self._idle_blocks = IDLE_BLOCKS
        if len(left) == len(block):
            return self._slow(block, left, first, misfits)
        proven = plain_table(slots.arrays(blobs.data), schema, len(block))
        if not len(left):
            return proven
        order = np.arange(len(block))
        order[left] = len(block) + np.arange(len(left))
        rest = self._slow(block, left, first, misfits)
        return joined([proven, rest], rest.schema).take(pa.array(order))

    def _slow(self, block: pa.Array, rows: Any, first: int, misfits: list[Misfit]) -> pa.Table:
        """The rows of these numbers in the block, one at a time, in order."""
        blobs = (block if len(rows) == len(block) else block.take(pa.array(rows))).to_pylist()
        read = self._reader.read
        numbers = [first + int(row) for row in rows]
        found = [
            read_row(read, blob, number, misfits)
            for number, blob in zip(numbers, blobs, strict=True)
        ]
        return table_of(found, self.schema, numbers, misfits)


def read_row(
    read: Callable[[bytes], dict[str, Any]],
    blob: bytes | None,
    number: int,
    misfits: list[Misfit],
) -> dict[str, Any]:
    """The row of a blob; an empty one for null and for a misfit, which is noted."""
    if blob is None:
        return {}
    try:
        return read(blob)
    except NotFittingError as error:
        misfits.append(error.at_row(number))
    except LookupsSpentError as error:
        raise LookupsSpentError(error.schema_id, number) from None
    except UNFORESEEN as error:
        misfits.append(unforeseen(error).at_row(number))
    return {}


def block_at(chunk: pa.Array, at: int, rows: int) -> pa.Array:
    """The slice of a binary array from `at` on, of `rows` or fewer rows and some BLOCK_BYTES."""
    block = chunk.slice(at, rows)
    while block.nbytes > BLOCK_BYTES and len(block) > 1:
        block = block.slice(0, len(block) // 2)
    return block


def table_of(
    rows: list[dict[str, Any]], schema: pa.Schema, numbers: list[int], misfits: list[Misfit]
) -> pa.Table:
    """Rows of these numbers as a table; keys that they lack are null. A row that Arrow does not
    take is a misfit."""
    try:
        return _table(rows, schema)
    except UNFORESEEN:
        for at, number in enumerate(numbers):
            try:
                _table([rows[at]], schema)
            except UNFORESEEN as error:
                misfits.append(unforeseen(error).at_row(number))
                rows[at] = {}
        return _table(rows, schema)


def unforeseen(error: Exception) -> NotFittingError:
    """The misfit of an error that no rule here names."""
    return NotFittingError(Reason.DOES_NOT_FIT, f"{type(error).__name__}: {error}")


def _table(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    return plain_table(columns, schema, len(rows))


def plain_table(columns: list[pa.Array], schema: pa.Schema, rows: int) -> pa.Table:
    """A table that knows its rows even without a column."""
    if not columns:
        return pa.table({"": pa.nulls(rows)}).select([])
    return pa.Table.from_arrays(columns, schema=schema)


def joined(tables: list[pa.Table], schema: pa.Schema) -> pa.Table:
    """The tables one after the other, each in the schema that the last one has reached."""
    if not len(schema):
        return plain_table([], schema, sum(table.num_rows for table in tables))
    columns = [
        pa.chunked_array(
            [piece for table in tables for piece in _pieces(table, field)], type=field.type
        )
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _pieces(table: pa.Table, field: pa.Field) -> list[pa.Array]:
    if field.name not in table.schema.names:
        return [pa.nulls(table.num_rows, field.type)]
    return [conform(chunk, field.type) for chunk in table.column(field.name).chunks]
