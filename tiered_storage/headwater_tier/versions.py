"""Which version of a log table holds an offset, and up to which offsets a version reaches.

Version to offsets: the tiered ends in that version. Offset to version: the first one whose end is
above the offset. Ends never fall, so it is found by bisection: ten versions are opened for a
thousand commits.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from headwater.errors import UsageError
from headwater_tier.delta import LogTable, TableAccessError, table_exists
from headwater_tier.delta_readers import LogHistory
from headwater_tier.table_names import TableLocation

LOG_RETENTION = "2 days"
"""`delta.logRetentionDuration` of log tables."""


@dataclass(frozen=True, slots=True)
class HeldSince:
    """The first version that holds an offset. `is_oldest`: an earlier one may have held it, which
    the log no longer has."""

    version: int
    committed_ms: int
    is_oldest: bool = False


def version_of(location: TableLocation, partition: int, offset: int) -> HeldSince:
    """The first version that holds the offset. Raises UsageError when none does, TableAccessError.

    An offset below the end counts as held, whether or not a record has it.
    """
    if not table_exists(location):
        raise UsageError(f"topic {location.topic} has no table at {location.uri} yet")
    newest = LogTable(location).snapshot
    end, start = newest.ends.get(partition), newest.starts.get(partition, 0)
    if end is None or offset >= end:
        reach = "nothing of it is tiered" if end is None else f"its table ends at {end}"
        raise UsageError(f"{location.topic}-{partition} offset {offset} is not tiered: {reach}")
    if offset < start:
        raise UsageError(
            f"{location.topic}-{partition} offset {offset} is below the log start {start}: its"
            " record is deleted"
        )
    history = LogHistory(location)
    versions = sorted(history.committed_ms)
    oldest = _oldest_readable(history, versions, partition)
    at = bisect_right(
        range(oldest, len(versions)),
        offset,
        key=lambda index: history.end_at(versions[index], partition),
    )
    version = versions[oldest + at]
    is_oldest = at == 0 and version > 0
    return HeldSince(version, history.committed_ms[version], is_oldest)


def _oldest_readable(history: LogHistory, versions: list[int], partition: int) -> int:
    """The index of the oldest version that can be opened: a cleanup of the log may have left
    commits whose checkpoint is gone."""
    for index, version in enumerate(versions):
        try:
            history.end_at(version, partition)
        except TableAccessError:
            continue
        return index
    raise TableAccessError(f"no version of {history.location.uri} can be opened")


def ends_at(location: TableLocation, at: int | datetime) -> tuple[int, Mapping[int, int]]:
    """A version, by number or as of a time, and its tiered end per partition.

    Raises UsageError without a table, TableAccessError without such a version.
    """
    if not table_exists(location):
        raise UsageError(f"topic {location.topic} has no table at {location.uri} yet")
    snapshot = LogTable(location, at=at).snapshot
    return snapshot.version, snapshot.ends
