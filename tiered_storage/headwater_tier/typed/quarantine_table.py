"""The quarantine table: records that fit no typed row, with offset and reason.

`record_decoder` finds them, `quarantine_reasons` names the reasons, `follow_log` appends each turn.
It has an end of its own. If a write to it fails, the typed table goes on, and the quarantine
catches up by decoding the log again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater_tier.delta import CommitUnknownError, table_exists
from headwater_tier.reader import TableReader
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.declarations import cut_by_declaration
from headwater_tier.typed.decoding import DecoderFor, SchemaSource
from headwater_tier.typed.derived_files import read_derived, write_derived
from headwater_tier.typed.derived_table import DerivedChange, DerivedTable
from headwater_tier.typed.log_rows import rows_between
from headwater_tier.typed.names import Derived, Kind, derived
from headwater_tier.typed.quarantine_reasons import Misfit, Reason
from headwater_tier.typed.record_decoder import (
    QUARANTINE_SCHEMA,
    DecodedRecords,
    RecordDecoder,
)
from headwater_tier.typed.typed_table import base_properties, declarations_of

ADMITTED_LATER = "it decodes by now: `headwater tier replay` admits it"


class Quarantine:
    """The quarantine of one generation of a typed table. Not thread-safe."""

    def __init__(self, log: TableLocation, generation: int) -> None:
        """Opens nothing: the table is made by the first record in it."""
        self._log = log
        self._derived: Derived = derived(log, Kind.QUARANTINE, generation)
        self._table: DerivedTable | None = None

    def table(self) -> DerivedTable | None:
        """The table at its newest version; None while nothing was quarantined."""
        if self._table is not None:
            self._table.refresh()
        elif table_exists(self._derived.place):
            self._table = DerivedTable(self._derived)
        return self._table

    @property
    def rows(self) -> int:
        """The number of records, as of the last look; all generations."""
        return 0 if self._table is None else self._table.rows

    def ends(self, typed: DerivedTable, partitions: int) -> dict[int, int]:
        """Per partition, the offset below which no quarantined record is missing."""
        table = self.table()
        own = {} if table is None else table.ends(partitions)
        clean = typed.clean(partitions)
        return {p: max(own.get(p, 0), clean.get(p, 0)) for p in {*own, *clean}}

    def append(
        self,
        rows: pa.Table,
        spans: Mapping[int, tuple[int, int]],
        *,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        """Commit the rows of offset ranges [start, end).

        Raises CommitUnknownError when another writer was first, TableAccessError, TableStateError.
        """
        table = self.table() or self._created()
        for partition, (start, _) in spans.items():
            end = table.version_of(self._derived.end_txn(partition)) or 0
            if end > start:
                raise CommitUnknownError(
                    f"{table.uri}: another writer quarantined partition {partition} up to {end}"
                )
        adds = [write_derived(self._derived.place, rows, entropy.uuid())] if rows.num_rows else []
        versions = {self._derived.end_txn(p): end for p, (_, end) in spans.items()}
        table.commit(DerivedChange("quarantine", clock.now_ms(), adds, versions=versions))
        table.refresh()

    def _created(self) -> DerivedTable:
        properties = base_properties(self._log, QUARANTINE_SCHEMA)
        self._table = DerivedTable.create(self._derived, QUARANTINE_SCHEMA, properties)
        return self._table


class CatchUp:
    """Decodes the log again for records that typed passed over and the quarantine lacks."""

    def __init__(
        self,
        log: TableReader,
        typed: DerivedTable,
        schemas: SchemaSource,
        decoder_for: DecoderFor,
        *,
        needs_key: bool,
    ) -> None:
        """Reads `typed` and `log` at the versions that they are at."""
        self._log = log
        self._typed = typed
        self._schemas = schemas
        self._decoder_for = decoder_for
        self._needs_key = needs_key

    def rows(self, partition: int, start: int, end: int) -> tuple[pa.Table, int]:
        """What the quarantine table must get for [start, end) of a partition, and the end that was
        reached: earlier when too many schema ids are unknown."""
        found = [QUARANTINE_SCHEMA.empty_table()]
        generation = self._typed.derived.generation
        for declaration, first, last in cut_by_declaration(
            declarations_of(self._typed), partition, start, end
        ):
            decoder = RecordDecoder(
                declaration,
                self._typed.schema,
                self._schemas,
                self._decoder_for,
                needs_key=self._needs_key,
            )
            for rows in rows_between(self._log, partition, first, last):
                decoded = self._with_lost(decoder.decode_some(rows), partition)
                found.append(decoded.quarantined(generation))
                if (count := decoded.rows.num_rows) < rows.num_rows:
                    return pa.concat_tables(found), rows.column("offset")[count].as_py()
        return pa.concat_tables(found), end

    def _with_lost(self, decoded: DecodedRecords, partition: int) -> DecodedRecords:
        """With the rows that fit today, but did not when typed passed over them."""
        offsets = decoded.rows.column("offset")
        if not len(offsets):
            return decoded
        bad = {misfit.row for misfit in (*decoded.misfits, *decoded.without_key)}
        bounds = pc.min_max(offsets)
        held = held_offsets(
            self._typed, partition, bounds["min"].as_py(), bounds["max"].as_py() + 1
        )
        lost = np.flatnonzero(~np.isin(offsets.to_numpy(), held))
        more = [
            Misfit(int(row), Reason.UNKNOWN_SCHEMA, ADMITTED_LATER)
            for row in lost
            if int(row) not in bad
        ]
        if not more:
            return decoded
        return DecodedRecords(
            decoded.rows,
            decoded.keys,
            decoded.values,
            [*decoded.misfits, *more],
            decoded.without_key,
            decoded.schema_ids,
        )


def held_offsets(typed: DerivedTable, partition: int, start: int, end: int) -> np.ndarray:
    """The offsets in [start, end) of a partition that the typed table has rows of."""
    found = [np.empty(0, np.int64)]
    for live in typed.files():
        if not live.may_hold(partition, start, end):
            continue
        rows = read_derived(typed.derived.place, live.path, ["partition", "offset"])
        offsets = rows.filter(pc.equal(rows.column("partition"), partition)).column("offset")
        found.append(offsets.to_numpy())
    offsets = np.concatenate(found)
    return offsets[(offsets >= start) & (offsets < end)]
