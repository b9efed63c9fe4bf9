"""The contents of a topic's derived tables, for `headwater tier typed` and its status."""

from __future__ import annotations

from dataclasses import dataclass

from headwater.errors import UsageError
from headwater_tier.delta import table_exists
from headwater_tier.reader import TableReader
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.column_growth import FIXED
from headwater_tier.typed.derived_table import DerivedTable
from headwater_tier.typed.log_rows import pending_ranges
from headwater_tier.typed.names import Kind, derived
from headwater_tier.typed.quarantine_table import Quarantine
from headwater_tier.typed.typed_table import current_generation, declarations_of


@dataclass(frozen=True, slots=True)
class TypedState:
    """Rows and ends of the typed table and of the quarantine; offsets that each is behind."""

    topic: str
    uri: str
    generation: int
    format: str
    columns: tuple[str, ...]
    rows: int
    ends: tuple[int, ...]
    """The next offset per partition, 0 for one that was not begun."""
    log_ends: tuple[int, ...]
    behind: int
    quarantined: int
    quarantine_uri: str
    quarantine_behind: int
    foreign_commits: tuple[str, ...]
    """What others did since Headwater's last commit."""
    latest_rows: int | None = None
    """Rows of the table of latest rows; None without one."""


def typed_state(location: TableLocation) -> TypedState | None:
    """The state by now; None while the topic has no typed table. Raises TableAccessError."""
    typed = current_generation(location, checked=False)
    if typed is None:
        return None
    log = TableReader(location)
    partitions = log.snapshot.partitions
    ends = typed.ends(partitions)
    generation = typed.derived.generation
    done = Quarantine(location, generation).ends(typed, partitions)
    lag = {p: end - max(done.get(p, 0), log.snapshot.starts.get(p, 0)) for p, end in ends.items()}
    place = derived(location, Kind.QUARANTINE, generation).place
    return TypedState(
        topic=location.topic,
        uri=typed.uri,
        generation=generation,
        format=declarations_of(typed)[-1].declaration.value.format,
        columns=tuple(name for name in typed.schema.names if name not in FIXED.names),
        rows=typed.rows,
        ends=tuple(ends.get(p, 0) for p in range(partitions)),
        log_ends=tuple(log.snapshot.ends.get(p, 0) for p in range(partitions)),
        behind=sum(end - start for start, end in pending_ranges(log, ends).values()),
        quarantined=_rows_of(location, Kind.QUARANTINE, generation) or 0,
        quarantine_uri=place.uri,
        quarantine_behind=sum(max(0, offsets) for offsets in lag.values()),
        foreign_commits=tuple(_sentence(info) for info in typed.foreign_commits()),
        latest_rows=_rows_of(location, Kind.LATEST, generation),
    )


def derived_uri(location: TableLocation, kind: str) -> str | None:
    """Where the derived table of a kind is, of the generation in place; None without one.

    Raises UsageError for a kind that there is none of.
    """
    kinds = [known.value for known in Kind]
    if kind not in kinds:
        raise UsageError(f"kind {kind!r} of table is unknown: use log, {', '.join(kinds)}")
    typed = current_generation(location, checked=False)
    if typed is None:
        return None
    place = derived(location, Kind(kind), typed.derived.generation).place
    return place.uri if table_exists(place) else None


def _rows_of(location: TableLocation, kind: Kind, generation: int) -> int | None:
    place = derived(location, kind, generation)
    return DerivedTable(place, checked=False).rows if table_exists(place.place) else None


def _sentence(info: dict[str, object]) -> str:
    engine = info.get("engineInfo", "unknown engine")
    return f"version {info.get('version')}: {info.get('operation')} ({engine})"
