"""Debezium's envelope: change events become the row after the change, and columns that say of it.

As Debezium's own ExtractNewRecordState: `__op`, `__source_lsn` and so on beside the row's columns.
A delete has the row before it. An event of another kind (truncate, message) has a null row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater_tier.typed.column_growth import DEBEZIUM_MARK
from headwater_tier.typed.decoding import (
    BlobDecoder,
    DeclaredFormat,
    Decoded,
    DecoderFor,
    SchemaSource,
)
from headwater_tier.typed.latest_row import LSN, OP
from headwater_tier.typed.quarantine_reasons import Misfit, Reason

OPERATIONS = ("c", "r", "u", "d", "t", "m")
"""Create, read (of a snapshot), update, delete, truncate, message."""
_SOURCE_FIELDS = (("lsn", LSN), ("ts_ms", "__source_ts_ms"))
_TRANSACTION_FIELDS = (
    ("id", "__transaction_id", pa.string()),
    ("total_order", "__transaction_total_order", pa.int64()),
)
META = pa.schema(
    [
        pa.field(name, type_, metadata=DEBEZIUM_MARK)
        for name, type_ in (
            (OP, pa.string()),
            *((name, pa.int64()) for _, name in _SOURCE_FIELDS),
            *((name, type_) for _, name, type_ in _TRANSACTION_FIELDS),
        )
    ]
)
"""The columns beside the row's; their names are as ExtractNewRecordState makes them."""


class DebeziumDecoder:
    """A `BlobDecoder` around one of the envelope's format."""

    def __init__(
        self,
        declared: DeclaredFormat,
        known: pa.Schema,
        schemas: SchemaSource,
        decoder_for: DecoderFor,
    ) -> None:
        """`known` are the table's columns, those of META among them, or none."""
        self._row = [field for field in known if field.name not in META.names]
        self._envelope = decoder_for(declared, _envelope(self._row), schemas)
        self._take(self._envelope.schema)

    @property
    def schema(self) -> pa.Schema:
        """META's columns, then the row's."""
        return pa.schema([*META, *self._row])

    def decode(self, blobs: pa.ChunkedArray) -> Decoded:
        """Decode change events; null blobs are tombstones, whose columns are null."""
        found = self._envelope.decode(blobs)
        self._take(found.columns.schema)
        columns = found.columns.combine_chunks()
        op = _text(columns, OP.removeprefix("__"))
        misfits = [*found.misfits, *_no_events(blobs, op, found.misfits)]
        fits = np.ones(len(blobs), bool)
        fits[[misfit.row for misfit in misfits]] = False
        keep = pa.array(fits)
        is_delete = pc.fill_null(pc.equal(op, "d"), False)
        arrays = [pc.if_else(keep, op, pa.scalar(None, pa.string())), *_metadata(columns)]
        before, after = _struct(columns, "before"), _struct(columns, "after")
        for field in self._row:
            old, new = (_child(s, field.name, field.type, len(op)) for s in (before, after))
            arrays.append(pc.if_else(is_delete, old, new))
        table = pa.table([_as_column(a) for a in arrays], schema=self.schema)
        return Decoded(table, tuple(sorted(misfits, key=lambda m: m.row)), found.schema_ids)

    def _take(self, envelope: pa.Schema) -> None:
        """Add the row's new columns, of `after` first."""
        for side in ("after", "before"):
            at = envelope.get_field_index(side)
            if at < 0 or not pa.types.is_struct(envelope.field(at).type):
                continue
            type_ = envelope.field(at).type
            for field in (type_.field(i) for i in range(type_.num_fields)):
                places = {own.name: place for place, own in enumerate(self._row)}
                if field.name in META.names:
                    continue  # META's column of this name is the event's
                if field.name not in places:
                    self._row.append(pa.field(field.name, field.type))
                elif side == "after":  # a nested column may have grown
                    self._row[places[field.name]] = pa.field(field.name, field.type)


def with_envelopes(decoder_for: DecoderFor) -> DecoderFor:
    """A factory that also knows `DeclaredFormat.envelope`."""

    def made(declared: DeclaredFormat, known: pa.Schema, schemas: SchemaSource) -> BlobDecoder:
        if declared.envelope:
            return DebeziumDecoder(declared, known, schemas, decoder_for)
        return decoder_for(declared, known, schemas)

    return made


def _envelope(row: Sequence[pa.Field]) -> pa.Schema:
    """The envelope that the decoder knows, from the row's columns."""
    source = pa.struct([pa.field(name, pa.int64()) for name, _ in _SOURCE_FIELDS])
    transaction = pa.struct([pa.field(name, type_) for name, _, type_ in _TRANSACTION_FIELDS])
    sides = [pa.field(side, pa.struct(list(row))) for side in ("before", "after")] if row else []
    return pa.schema(
        [
            *sides,
            pa.field("source", source),
            pa.field("transaction", transaction),
            pa.field("op", pa.string()),
        ]
    )


def _no_events(blobs: pa.ChunkedArray, op: pa.Array, misfits: Sequence[Misfit]) -> list[Misfit]:
    """Misfits of values that decode, but are no change events."""
    known = pc.is_in(op, value_set=pa.array(OPERATIONS))
    wrong = pc.and_(pc.invert(known), pc.is_valid(blobs).combine_chunks())
    seen = {misfit.row for misfit in misfits}
    rows = np.flatnonzero(wrong.to_numpy(zero_copy_only=False)).tolist()
    return [
        Misfit(row, Reason.DOES_NOT_FIT, f"no change event of Debezium: op is {op[row].as_py()!r}")
        for row in rows
        if row not in seen
    ]


def _metadata(columns: pa.Table) -> list[pa.Array]:
    source, transaction = _struct(columns, "source"), _struct(columns, "transaction")
    rows = columns.num_rows
    found = [_child(source, name, pa.int64(), rows) for name, _ in _SOURCE_FIELDS]
    return found + [_child(transaction, name, t, rows) for name, _, t in _TRANSACTION_FIELDS]


def _text(columns: pa.Table, name: str) -> pa.Array:
    if name not in columns.schema.names:
        return pa.nulls(columns.num_rows, pa.string())
    return _flat(columns.column(name)).cast(pa.string())


def _struct(columns: pa.Table, name: str) -> pa.StructArray | None:
    if name not in columns.schema.names:
        return None
    found = _flat(columns.column(name))
    return found if pa.types.is_struct(found.type) else None


def _child(struct: pa.StructArray | None, name: str, type_: pa.DataType, rows: int) -> pa.Array:
    """A field of a struct, null where the struct is null."""
    at = -1 if struct is None else struct.type.get_field_index(name)
    if struct is None or at < 0:
        return pa.nulls(rows, type_)
    child = struct.flatten()[at]
    return child if child.type == type_ else child.cast(type_)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _as_column(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return _flat(array) if isinstance(array, pa.ChunkedArray) else array
