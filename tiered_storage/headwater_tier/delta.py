"""The log table in Delta: the only user of deltalake, and the only committer (design: the fence).

Every read of the fence comes from a snapshot that passed all checks; every commit happens on the
snapshot that was checked, with retries off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headwater.errors import HeadwaterError
from headwater_tier.plan import TableLocation


class TableStateError(HeadwaterError):
    """The table is not what Headwater left: foreign commit, feature, property. Names it."""


class TableAccessError(HeadwaterError):
    """The table cannot be read or written: missing, not writable, storage refused. Names the path."""


@dataclass(frozen=True, slots=True)
class LiveFile:
    """One file of the snapshot; path relative to the table; None where no statistics were kept."""

    path: str
    size_bytes: int
    rows: int
    modified_ms: int
    min_partition: int | None
    max_partition: int | None
    min_offset: int | None
    max_offset: int | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of the table that passed every check."""

    version: int
    partitions: int
    ends: Mapping[int, int]
    starts: Mapping[int, int]
    rows: int
    files: tuple[LiveFile, ...]


class LogTable:
    """A handle on one topic's log table. Not thread-safe; `refresh` to see newer commits."""

    def __init__(self, location: TableLocation) -> None:
        """Open what is there. Raises TableAccessError when there is no table."""
        raise NotImplementedError

    @classmethod
    def create(cls, location: TableLocation, partitions: int) -> LogTable:
        """Create it with our protocol and properties, or open it if it is there already."""
        raise NotImplementedError

    def refresh(self) -> Snapshot:
        """The newest version, checked. Raises TableStateError, naming the foreign commit."""
        raise NotImplementedError

    @property
    def snapshot(self) -> Snapshot:
        """The version that the last refresh checked."""
        raise NotImplementedError


def table_exists(location: TableLocation) -> bool:
    """True when a log table is there."""
    raise NotImplementedError
