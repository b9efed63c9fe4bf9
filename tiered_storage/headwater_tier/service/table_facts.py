"""A table's version in numbers, as the service reports them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater_tier.delta import Snapshot


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A version of a table in numbers."""

    version: int
    rows: int
    size_bytes: int
    files: int
    starts: Mapping[int, int]


def facts_of(snapshot: Snapshot) -> TableFacts:
    """The facts of a checked version."""
    return TableFacts(
        version=snapshot.version,
        rows=snapshot.rows,
        size_bytes=snapshot.size_bytes,
        files=len(snapshot.files),
        starts=dict(snapshot.starts),
    )
