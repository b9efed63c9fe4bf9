"""`headwater tier replay`: re-admits quarantined records that fit by now.

Rows are appended to the typed table first, and only those that it lacks in the snapshot that the
commit is made against; then they are deleted from the quarantine. A replay that was killed in
between is repeated without harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater_tier.delta import CommitUnknownError, TableAccessError, table_exists
from headwater_tier.reader import TableReader
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.column_growth import grown
from headwater_tier.typed.declarations import Declaration
from headwater_tier.typed.decoding import DecoderFor, SchemaSource
from headwater_tier.typed.derived_files import read_derived, write_derived
from headwater_tier.typed.derived_table import DerivedChange, DerivedFile, DerivedTable
from headwater_tier.typed.latest_table import Latest
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.quarantine_reasons import Reason
from headwater_tier.typed.quarantine_table import held_offsets
from headwater_tier.typed.record_decoder import (
    QUARANTINE_SCHEMA,
    DecodedRecords,
    RecordDecoder,
)
from headwater_tier.typed.typed_table import current_generation, declarations_of, grow

ATTEMPTS_MAX = 20


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """`admitted` rows are new in the typed table; `known` ones it had, from an earlier replay."""

    admitted: int = 0
    known: int = 0
    left: int = 0
    """Records that stay in quarantine."""

    def __add__(self, other: ReplayResult) -> ReplayResult:
        return ReplayResult(
            self.admitted + other.admitted, self.known + other.known, self.left + other.left
        )


def replay(
    location: TableLocation,
    schemas: SchemaSource,
    clock: Clock,
    *,
    decoder_for: DecoderFor,
    entropy: Entropy,
) -> ReplayResult:
    """Decode all quarantined records again. Raises TableAccessError, TableStateError."""
    typed = current_generation(location)
    place = derived(location, Kind.QUARANTINE)
    if typed is None or not table_exists(place.place):
        return ReplayResult()
    quarantine = DerivedTable(place)
    quarantine.require_whole_files()
    job = _Replay(location, typed, quarantine, schemas, clock, decoder_for, entropy)
    result = ReplayResult()
    for live in quarantine.files():
        result += job.file(live)
    return result


class _Replay:
    """One pass over the quarantine's files."""

    def __init__(
        self,
        location: TableLocation,
        typed: DerivedTable,
        quarantine: DerivedTable,
        schemas: SchemaSource,
        clock: Clock,
        decoder_for: DecoderFor,
        entropy: Entropy,
    ) -> None:
        self._location = location
        self._partitions = TableReader(location).snapshot.partitions
        self._typed = typed
        self._quarantine = quarantine
        self._schemas = schemas
        self._clock = clock
        self._decoder_for = decoder_for
        self._entropy = entropy

    def file(self, live: DerivedFile) -> ReplayResult:
        """Admit what fits of one file's records, and rewrite it without them."""
        for _ in range(ATTEMPTS_MAX):
            rows = read_derived(self._quarantine.derived.place, live.path)
            rows = rows.select(QUARANTINE_SCHEMA.names).cast(QUARANTINE_SCHEMA)
            try:
                fits, new = self._admit(rows)
            except CommitUnknownError:
                self._typed.refresh()
                continue
            if fits.any():
                self._tell_latest(rows.filter(pa.array(fits)))
            admitted = int(np.count_nonzero(new))
            count = int(np.count_nonzero(fits))
            if count and not self._rewritten(live, rows.filter(pa.array(~fits))):
                return ReplayResult(admitted)  # someone rewrote it: the next replay sees to it
            return ReplayResult(admitted, count - admitted, rows.num_rows - count)
        raise TableAccessError(
            f"{ATTEMPTS_MAX} commits to {self._typed.uri} failed, as other writers came first"
        )

    def _admit(self, rows: pa.Table) -> tuple[np.ndarray, np.ndarray]:
        """Append what the typed table lacks; the rows that fit, and those of them that were new."""
        decoder = RecordDecoder(
            self._declaration(), self._typed.schema, self._schemas, self._decoder_for
        )
        decoded = decoder.decode(rows)
        schema = grown(self._typed.schema, decoder.keys, decoder.values)
        if schema != self._typed.schema:
            grow(self._typed, schema)
        fits = self._fit(decoded)
        new = fits & ~self._held(rows)
        if new.any():
            chosen = decoded.only(new).typed(self._typed.schema)
            place = self._typed.derived.place
            adds = [write_derived(place, chosen, self._entropy.uuid())]
            self._typed.commit(DerivedChange("replay", self._clock.now_ms(), adds))
            self._typed.refresh()
        return fits, new

    def _tell_latest(self, admitted: pa.Table) -> None:
        """Before the rows leave the quarantine, so that a killed replay tells it when repeated."""
        generation = self._typed.derived.generation
        if not table_exists(derived(self._location, Kind.LATEST, generation).place):
            return
        for _ in range(ATTEMPTS_MAX):
            latest = Latest(self._location, self._clock, self._entropy)
            try:
                latest.admit(self._typed, admitted, self._partitions)
                return
            except CommitUnknownError:
                continue
        raise TableAccessError(f"{ATTEMPTS_MAX} merges of {self._location.topic}_latest failed")

    def _declaration(self) -> Declaration:
        return declarations_of(self._typed)[-1].declaration

    def _fit(self, decoded: DecodedRecords) -> np.ndarray:
        """Rows that decode, and that following has passed: it brings the others by itself.

        Those of another generation are not judged here: a retype is building it.
        """
        generation = self._typed.derived.generation
        of_generation = decoded.rows.column("generation").to_numpy()
        fits: np.ndarray = np.equal(of_generation, generation)
        fits[[misfit.row for misfit in decoded.misfits]] = False
        reasons = decoded.rows.column("reason")
        without_key = pc.equal(reasons, Reason.NO_KEY.value)  # the typed table has them
        fits &= ~without_key.to_numpy()
        for partition in pc.unique(decoded.rows.column("partition")).to_pylist():
            end = self._typed.version_of(self._typed.derived.end_txn(partition)) or 0
            mine = pc.equal(decoded.rows.column("partition"), partition).to_numpy()
            fits &= ~(mine & (decoded.rows.column("offset").to_numpy() >= end))
        return fits

    def _held(self, rows: pa.Table) -> np.ndarray:
        held = np.zeros(rows.num_rows, bool)
        offsets = rows.column("offset").to_numpy()
        for partition in pc.unique(rows.column("partition")).to_pylist():
            mine = pc.equal(rows.column("partition"), partition).to_numpy()
            first, last = int(offsets[mine].min()), int(offsets[mine].max())
            held |= mine & np.isin(offsets, held_offsets(self._typed, partition, first, last + 1))
        return held

    def _rewritten(self, live: DerivedFile, left: pa.Table) -> bool:
        """Replace a file of the quarantine by what is left of it; False if it is live no more."""
        return rewrite(self._quarantine, {live.path: left}, self._clock, self._entropy)


def rewrite(
    table: DerivedTable, left: Mapping[str, pa.Table], clock: Clock, entropy: Entropy
) -> bool:
    """Replace files by the rows that are left of them; False if one of them is live no more."""
    for _ in range(ATTEMPTS_MAX):
        live = {file.path: file for file in table.files() if file.path in left}
        if len(live) < len(left):
            return False
        rest = [rows for rows in left.values() if rows.num_rows]
        adds = [write_derived(table.derived.place, rows, entropy.uuid()) for rows in rest]
        try:
            table.commit(DerivedChange("admit", clock.now_ms(), adds, removes=list(live.values())))
        except CommitUnknownError:
            table.refresh()
            continue
        table.refresh()
        return True
    raise TableAccessError(f"{ATTEMPTS_MAX} commits to {table.uri} failed")
