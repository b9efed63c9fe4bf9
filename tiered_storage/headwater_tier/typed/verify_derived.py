"""`headwater verify --deep`: compares the derived tables of a topic with its log table.

Every record of the log table, up to the typed table's `end`, is once in the typed table or once in
quarantine; the table of latest rows has the newest row of each key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater_tier.delta import LogTable, TableAccessError, filesystem, table_exists
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.column_growth import TOMBSTONE
from headwater_tier.typed.derived_files import in_schema, read_derived
from headwater_tier.typed.derived_table import DerivedTable
from headwater_tier.typed.latest_row import GROWTHS, LSN, OP, growths_from_property, newest_rows
from headwater_tier.typed.latest_table import after_truncate, events, key_columns
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.quarantine_reasons import Reason
from headwater_tier.typed.quarantine_table import Quarantine
from headwater_tier.typed.typed_table import current_generation

NAMED_MAX = 20
"""Offsets that a report names; its counts are complete."""


@dataclass(frozen=True, slots=True)
class TypedReport:
    """One partition's offsets [start_offset, end_offset) in the three tables; lists are cut."""

    partition: int
    start_offset: int
    end_offset: int
    log_rows: int
    typed_rows: int
    quarantined: int
    missing: tuple[int, ...]
    """In neither table: lost, or erased by a user."""
    doubled: tuple[int, ...]
    """Twice in one table, or in both."""
    foreign: tuple[int, ...]
    """Not in the log table."""
    counts: tuple[int, int, int]
    """The numbers of missing, doubled and foreign offsets."""

    @property
    def equal(self) -> bool:
        """True without any difference."""
        return not any(self.counts)


@dataclass(frozen=True, slots=True)
class DerivedVerification:
    """`latest_rows` is None without a table of latest rows."""

    typed_uri: str
    generation: int
    partitions: tuple[TypedReport, ...]
    quarantine_behind: int
    latest_rows: int | None = None
    latest_differing: int = 0
    """Keys whose row is missing, old, or should not be there."""

    @property
    def equal(self) -> bool:
        """True when the derived tables have what the log table has."""
        return not self.latest_differing and all(report.equal for report in self.partitions)


def verify_derived(location: TableLocation) -> DerivedVerification | None:
    """Compare; None for a topic without a typed table. Takes some 50 bytes of memory per row."""
    typed = current_generation(location, checked=False)
    if typed is None:
        return None
    log = LogTable(location, checked=False).snapshot
    generation = typed.derived.generation
    quarantine = Quarantine(location, generation)
    ends = typed.ends(log.partitions)
    done = quarantine.ends(typed, log.partitions)
    in_log = _by_partition(_log_places(location, [f.path for f in log.files]))
    in_typed = _by_partition(_typed_places(typed))
    in_quarantine = _by_partition(_quarantine_places(location, generation))
    reports, behind = [], 0
    for partition, end in sorted(ends.items()):
        start = log.starts.get(partition, 0)
        known = max(start, done.get(partition, start))
        behind += max(0, end - known)
        held = (in_typed.get(partition, _NONE), in_quarantine.get(partition, _NONE))
        wanted = in_log.get(partition, _NONE)
        reports.append(_report(partition, (start, end), wanted, held, min(known, end)))
    latest, differing = _latest(location, typed, log.partitions)
    return DerivedVerification(typed.uri, generation, tuple(reports), behind, latest, differing)


_NONE = np.empty(0, np.int64)


def _report(
    partition: int,
    span: tuple[int, int],
    log: np.ndarray,
    held: tuple[np.ndarray, np.ndarray],
    known: int,
) -> TypedReport:
    """`known`: the quarantine is complete below it."""
    start, end = span
    log = log[(log >= start) & (log < end)]
    typed, quarantined = (offsets[offsets >= start] for offsets in held)
    places, times = np.unique(np.concatenate([typed, quarantined]), return_counts=True)
    missing = np.setdiff1d(log[log < known], places)
    foreign = np.setdiff1d(places, log)
    doubled = places[times > 1]
    return TypedReport(
        partition,
        start,
        end,
        len(log),
        len(typed),
        len(quarantined),
        _named(missing),
        _named(doubled),
        _named(foreign),
        (len(missing), len(doubled), len(foreign)),
    )


def _named(offsets: np.ndarray) -> tuple[int, ...]:
    return tuple(int(offset) for offset in offsets[:NAMED_MAX])


def _by_partition(places: Iterator[pa.Table]) -> dict[int, np.ndarray]:
    """The offsets per partition, in any order."""
    parts: dict[int, list[np.ndarray]] = {}
    for rows in places:
        partitions = rows.column("partition").to_numpy()
        offsets = rows.column("offset").to_numpy()
        for partition in np.unique(partitions).tolist():
            parts.setdefault(partition, []).append(offsets[partitions == partition])
    return {partition: np.concatenate(found) for partition, found in parts.items()}


def _log_places(location: TableLocation, paths: Sequence[str]) -> Iterator[pa.Table]:
    files = filesystem(location)
    for path in paths:
        try:
            with files.open_input_file(path) as file, pq.ParquetFile(file) as source:
                yield source.read(columns=["partition", "offset"], use_threads=False)
        except (OSError, pa.ArrowException) as error:
            raise TableAccessError(f"{location.uri}/{path} cannot be read: {error}") from error


def _typed_places(typed: DerivedTable) -> Iterator[pa.Table]:
    typed.require_whole_files()
    for live in typed.files():
        yield read_derived(typed.derived.place, live.path, ["partition", "offset"])


def _quarantine_places(location: TableLocation, generation: int) -> Iterator[pa.Table]:
    """Records that are in no typed row: those without a key are in both tables."""
    place = derived(location, Kind.QUARANTINE, generation)
    if not table_exists(place.place):
        return
    table = DerivedTable(place, checked=False)
    table.require_whole_files()
    for live in table.files():
        columns = ["partition", "offset", "generation", "reason"]
        rows = read_derived(place.place, live.path, columns)
        mine = pc.equal(rows.column("generation"), generation)
        yield rows.filter(pc.and_(mine, pc.not_equal(rows.column("reason"), Reason.NO_KEY.value)))


def _latest(
    location: TableLocation, typed: DerivedTable, partitions: int
) -> tuple[int | None, int]:
    """(rows, keys that differ) of the table of latest rows, up to its own ends."""
    place = derived(location, Kind.LATEST, typed.derived.generation)
    if not table_exists(place.place):
        return None, 0
    table = DerivedTable(place, checked=False)
    table.require_whole_files()
    keys = key_columns(typed.schema)
    ends = table.ends(partitions)
    names = ["partition", "offset", "timestamp", TOMBSTONE, *keys]
    names += [name for name in (OP, LSN) if name in typed.schema.names]
    rows = _rows(typed, names).sort_by([("partition", "ascending"), ("offset", "ascending")])
    places = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
    merged = pa.array([offset < ends.get(partition, 0) for partition, offset in places], pa.bool_())
    changes, _ = after_truncate(events(rows.filter(merged), keys))
    newest = newest_rows(changes, keys, table.parsed(GROWTHS, growths_from_property))
    gone = pc.equal(newest[OP], "d") if OP in newest.schema.names else newest[TOMBSTONE]
    wanted = _keyed(newest.filter(pc.invert(pc.fill_null(gone, False))), keys)
    found = _keyed(_rows(table, ["partition", "offset", *keys]), keys)
    return len(found), len(wanted.symmetric_difference(found))


def _rows(table: DerivedTable, names: Sequence[str]) -> pa.Table:
    schema = pa.schema([table.schema.field(name) for name in names])
    files = [
        in_schema(read_derived(table.derived.place, f.path, names), schema) for f in table.files()
    ]
    return pa.concat_tables([schema.empty_table(), *files])


def _keyed(rows: pa.Table, keys: Sequence[str]) -> set[tuple[object, ...]]:
    return set(
        zip(*(rows.column(n).to_pylist() for n in (*keys, "partition", "offset")), strict=True)
    )
