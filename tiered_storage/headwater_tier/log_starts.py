"""Raises the log starts of a log table's partitions: DeleteRecords and retention."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.clock import Clock
from headwater_tier.compaction import row_groups_of
from headwater_tier.delta import (
    Change,
    LiveFile,
    LogTable,
)
from headwater_tier.table_names import TableLocation


def move_starts(
    location: TableLocation, starts: Mapping[int, int], *, clock: Clock
) -> dict[int, int]:
    """Raise partitions' log starts (DeleteRecords, retention); the starts afterwards.

    A start never falls and never passes the partition's end. The same commit removes the files
    whose ranges are all below the starts, with `dataChange=false`, and lowers the row count. Raises
    CommitUnknownError when another commit came first.
    """
    return move_starts_of(LogTable(location), starts, clock=clock)


def move_starts_of(table: LogTable, starts: Mapping[int, int], *, clock: Clock) -> dict[int, int]:
    """`move_starts` of an open table, at its newest version."""
    location, snapshot = table.location, table.snapshot
    moved = {}
    for partition, start in starts.items():
        end = snapshot.ends.get(partition)
        if end is not None and start > snapshot.starts.get(partition, 0):
            moved[partition] = min(start, end)
    if not moved:
        return dict(snapshot.starts)
    after = {**snapshot.starts, **moved}
    removes = [f for f in snapshot.files if _is_below(location, f, after)]
    change = Change("retain", clock.now_ms(), removes=removes, starts=moved, data_change=False)
    table.commit(change)
    return dict(table.refresh().starts)


def _is_below(location: TableLocation, live: LiveFile, starts: Mapping[int, int]) -> bool:
    """True when every range of the file is below its partition's start."""
    if live.min_offset is not None and live.min_offset >= max(starts.values(), default=0):
        return False
    return all(
        g.min_partition == g.max_partition and g.max_offset < starts.get(g.min_partition, 0)
        for g in row_groups_of(location, live.path)
    )
