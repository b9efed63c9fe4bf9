"""The decoder over a reader of single rows: misfits, null blobs, and a schema that grows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pyarrow as pa

from headwater_tier.typed.decoding import Decoded, Misfit
from headwater_tier.typed.formats.columns import conform
from headwater_tier.typed.formats.misfit import NotFittingError

BLOCK_ROWS = 8192
BLOCK_BYTES = 256 * 1024 * 1024
"""Of blobs: an Arrow array of their strings then stays below 2 GiB, expanded escapes too."""


class RowReader(Protocol):
    """Reads one blob at a time."""

    @property
    def schema(self) -> pa.Schema:
        """The columns by now; a blob that is read may add some at the end."""

    def read(self, blob: bytes) -> dict[str, Any]:
        """The values by column name, as pyarrow takes them. Raises NotFittingError."""


class RowsDecoder:
    """A decoder of rows that are read singly (`headwater_tier.typed.decoding.BlobDecoder`)."""

    def __init__(self, reader: RowReader) -> None:
        self._reader = reader

    @property
    def schema(self) -> pa.Schema:
        """See the port."""
        return self._reader.schema

    def decode(self, blobs: pa.ChunkedArray) -> Decoded:
        """See the port."""
        misfits: list[Misfit] = []
        tables: list[pa.Table] = []
        at = 0
        for block in blocks_of(blobs):
            rows: list[dict[str, Any]] = []
            for number, scalar in enumerate(block, at):
                rows.append(read_row(self._reader.read, scalar.as_py(), number, misfits))
            tables.append(table_of(rows, self.schema))
            at += len(block)
        return Decoded(joined(tables, self.schema), tuple(misfits))


def read_row(read: Any, blob: bytes | None, number: int, misfits: list[Misfit]) -> dict[str, Any]:
    """The row of a blob; an empty one for null and for a misfit, which is noted."""
    if blob is None:
        return {}
    try:
        row: dict[str, Any] = read(blob)
    except NotFittingError as error:
        misfits.append(error.at_row(number))
        return {}
    return row


def blocks_of(blobs: pa.ChunkedArray) -> Iterator[pa.Array]:
    """Slices of a binary column, of BLOCK_ROWS or fewer rows and some BLOCK_BYTES."""
    for chunk in blobs.chunks:
        at = 0
        while at < len(chunk):
            block = chunk.slice(at, BLOCK_ROWS)
            while block.nbytes > BLOCK_BYTES and len(block) > 1:
                block = block.slice(0, len(block) // 2)
            yield block
            at += len(block)


def table_of(rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    """Rows as a table; keys that they lack are null."""
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
