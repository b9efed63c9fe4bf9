"""Decodes keys and values of records together, into the rows of a typed table and its misfits.

Each format in `formats` decides whether a value fits (`formats.misfit`); misfits go to
`quarantine_table`. `formats.confluent` decodes values with a schema id.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater_tier.typed.column_growth import (
    FIXED,
    KEY,
    TOMBSTONE,
    Part,
    conform,
    has_equality,
    is_debezium,
    known,
    loses,
    source_of,
    unchangeable,
)
from headwater_tier.typed.debezium import with_envelopes
from headwater_tier.typed.declarations import Declaration
from headwater_tier.typed.decoding import DecoderFor, SchemaSource
from headwater_tier.typed.latest_row import OP
from headwater_tier.typed.lookups import UNKNOWN_MAX, Lookups
from headwater_tier.typed.quarantine_reasons import (
    DETAIL_BYTES_MAX,
    LookupsSpentError,
    Misfit,
    Reason,
)

QUARANTINE_SCHEMA = pa.schema(
    [
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("schema_id", pa.int32()),
        pa.field("generation", pa.int32(), nullable=False),
        pa.field("reason", pa.string()),
        pa.field("detail", pa.string()),
    ]
)
BINARY_KEY = pa.schema([pa.field(KEY, pa.binary())])


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """`misfits` are by row, at most one per row; the rows of `without_key` fit all the same."""

    rows: pa.Table
    keys: pa.Table
    values: pa.Table
    misfits: Sequence[Misfit]
    without_key: Sequence[Misfit]
    schema_ids: pa.Array | None

    def typed(self, schema: pa.Schema) -> pa.Table:
        """The rows that fit, in the columns of the typed table that Headwater fills."""
        columns: dict[str, pa.ChunkedArray] = {}
        parts = {Part.KEY: self.keys, Part.VALUE: self.values}
        fields = []
        for field in schema:
            source = source_of(field)
            if field.name == TOMBSTONE and source is None:
                columns[field.name] = pc.is_null(self.rows.column("value"))
            elif source is None:
                if field.name not in FIXED.names:
                    continue  # a user's column
                columns[field.name] = self.rows.column(field.name)
            else:
                part = parts[source.part]
                if source.name not in part.schema.names:
                    continue
                columns[field.name] = conform(part.column(source.name), field.type)
            fields.append(field)
        table = pa.table(list(columns.values()), schema=pa.schema(fields))
        if not self.misfits:
            return table
        fits = np.ones(table.num_rows, bool)
        fits[[misfit.row for misfit in self.misfits]] = False
        return table.filter(pa.array(fits))

    def only(self, chosen: np.ndarray) -> DecodedRecords:
        """The rows that a mask chooses, all of which fit."""
        mask = pa.array(chosen)
        tables = (self.rows.filter(mask), self.keys.filter(mask), self.values.filter(mask))
        return DecodedRecords(*tables, (), (), None)

    def quarantined(self, generation: int) -> pa.Table:
        """The rows that do not fit, and those without a key, in the quarantine table's columns."""
        misfits = sorted((*self.misfits, *self.without_key), key=lambda m: m.row)
        taken = pa.array([misfit.row for misfit in misfits], pa.int64())
        rows = self.rows.select(["partition", "offset", "timestamp", "key", "value"]).take(taken)
        ids = pa.nulls(len(misfits), pa.int32())
        if self.schema_ids is not None:
            ids = pa.chunked_array([self.schema_ids]).combine_chunks().take(taken)
        more: list[pa.Array] = [
            ids,
            pa.array([generation] * len(misfits), pa.int32()),
            pa.array([misfit.reason.value for misfit in misfits], pa.string()),
            pa.array([misfit.detail for misfit in misfits], pa.string()),
        ]
        return pa.table([*rows.columns, *more], schema=QUARANTINE_SCHEMA)


class RecordDecoder:
    """The decoders of one declaration, which know a table's columns. Not thread-safe."""

    def __init__(
        self,
        declaration: Declaration,
        table: pa.Schema,
        schemas: SchemaSource,
        decoder_for: DecoderFor,
        *,
        needs_key: bool = False,
    ) -> None:
        """`needs_key`: records without a key are quarantined too, as for a row per key.

        Raises DeclarationError, SchemaUnavailableError.
        """
        self._needs_key = needs_key
        self._table = table
        self._lookups = (Lookups(schemas), Lookups(schemas))
        of_values, of_keys = self._lookups
        self._value = with_envelopes(decoder_for)(
            declaration.value, known(table, Part.VALUE), of_values
        )
        self._key = None
        if declaration.key is not None:
            keys = known(table, Part.KEY)
            self._key = decoder_for(declaration.key, keys, of_keys)

    @property
    def keys(self) -> pa.Schema:
        """The keys' columns by now, those that cannot change as the table has them."""
        if self._key is None:
            return BINARY_KEY
        schema, known_keys = self._key.schema, known(self._table, Part.KEY)
        fixed = unchangeable(self._table, schema)
        return pa.schema([known_keys.field(f.name) if f.name in fixed else f for f in schema])

    @property
    def values(self) -> pa.Schema:
        """The values' columns by now."""
        return self._value.schema

    def table_has(self, schema: pa.Schema) -> None:
        """The table has this schema by now."""
        self._table = schema

    def decode(self, rows: pa.Table) -> DecodedRecords:
        """Decode records with columns key and value. Raises SchemaUnavailableError."""
        self._begin(is_bounded=False)
        return self._decoded(rows)

    def decode_some(self, rows: pa.Table) -> DecodedRecords:
        """Decode the first records, all if few of their schema ids are unknown to the registry.

        Those before the first one that waits; at least one. Raises SchemaUnavailableError.
        """
        self._begin(is_bounded=True)
        while True:
            try:
                return self._decoded(rows)
            except LookupsSpentError as error:
                rows = rows.slice(0, error.row or UNKNOWN_MAX)

    def _begin(self, *, is_bounded: bool) -> None:
        for lookups in self._lookups:
            lookups.begin(is_bounded=is_bounded)

    def _decoded(self, rows: pa.Table) -> DecodedRecords:
        value = self._value.decode(rows.column("value"))
        keys = rows.select([KEY])
        key_misfits: Sequence[Misfit] = ()
        if self._key is not None:
            key = self._key.decode(rows.column("key"))
            keys = key.columns
            key_misfits = [*self._too_wide(keys), *key.misfits]
        misfits = {m.row: m for m in key_misfits} | {m.row: m for m in value.misfits}
        without = self._without_key(rows, value.columns, keys) if self._needs_key else []
        without = [misfit for misfit in without if misfit.row not in misfits]
        return DecodedRecords(
            rows, keys, value.columns, tuple(misfits.values()), without, value.schema_ids
        )

    def _too_wide(self, keys: pa.Table) -> list[Misfit]:
        """Keys with a field that their column lacks and cannot get."""
        found = []
        for name, type_ in unchangeable(self._table, keys.schema).items():
            detail = (
                f"the key's {name[:200]} has a field that its column lacks, and no column can get "
                "one beside a VARIANT: `headwater tier retype` builds the table with it"
            )[:DETAIL_BYTES_MAX]
            values = keys.column(name).to_pylist()
            found += [
                Misfit(row, Reason.DOES_NOT_FIT, detail)
                for row, value in enumerate(values)
                if loses(value, type_)
            ]
        return found

    def _without_key(self, rows: pa.Table, values: pa.Table, keys: pa.Table) -> list[Misfit]:
        """Records that change no key's row; a truncate and a message of Debezium need no key."""
        missing = rows.column("key").is_null()
        at = values.schema.get_field_index(OP)
        if at >= 0 and is_debezium(values.schema.field(at)):
            keyless = pc.is_in(values.column(OP), value_set=pa.array(["t", "m"]))
            missing = pc.and_(missing, pc.invert(keyless))
        detail = "the topic keeps the latest row per key, and this record has no key"
        found = np.flatnonzero(missing.to_numpy()).tolist()
        misfits = {row: Misfit(row, Reason.NO_KEY, detail) for row in found}
        for field in keys.schema:
            if has_equality(field.type):
                continue
            detail = (
                f"the topic keeps the latest row per key, and the key's {field.name[:200]} is of "
                f"type {field.type}, which has no equality: leave headwater.key.format empty"
            )[:DETAIL_BYTES_MAX]
            unfit = pc.is_valid(keys.column(field.name)).to_numpy()
            misfits |= {
                row: Misfit(row, Reason.NO_KEY, detail) for row in np.flatnonzero(unfit).tolist()
            }
        return list(misfits.values())
