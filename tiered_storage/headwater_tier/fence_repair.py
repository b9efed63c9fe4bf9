"""Rebuilds the fence of a log table (ends, starts, row count) from its live rows."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headwater.clock import Clock
from headwater_tier.delta import (
    Change,
    LogTable,
    Snapshot,
    TableStateError,
    filesystem,
)
from headwater_tier.table_names import TableLocation, rows_txn


def repair(location: TableLocation, *, clock: Clock) -> dict[int, int]:
    """Rebuild the fence (ends, starts, row count) from the live rows; the ends.

    For a table whose fence was lost or whose rows a foreign commit changed. If the row count still
    holds, an `end` above the last row is kept, as trailing control records have no rows. If rows
    are missing, `end` becomes the last row's offset + 1: tiering fetches the missing records again,
    or fails if they no longer exist. Raises TableStateError if an offset occurs twice, as nothing
    shows which copy is right.
    """
    table = LogTable(location, checked=False)
    snapshot = table.snapshot
    ends, starts = dict(snapshot.ends), dict(snapshot.starts)
    without = [f.path for f in snapshot.files if f.rows is None]
    if without:
        raise TableStateError(
            f"{location.uri}: file {without[0]} has no row count, so a foreign writer added it: "
            "restore a version before that"
        )
    spans = _spans(location, snapshot)
    for partition, (first, last, rows, distinct) in spans.items():
        if rows != distinct:
            raise TableStateError(
                f"{location.uri}: partition {partition} holds {rows - distinct} offsets more than "
                "once: restore a version before the foreign commit, or delete the copies"
            )
        is_whole = table.version_of(rows_txn(location.topic_id)) == snapshot.rows
        ends[partition] = max(last + 1, ends.get(partition, 0) if is_whole else 0)
        starts.setdefault(partition, first)
    # The commit computes the row count from the live files, not from the fence.
    change = Change("repair", clock.now_ms(), ends=ends, starts=starts, data_change=False)
    table.commit(change)
    return dict(LogTable(location).snapshot.ends)


def _spans(location: TableLocation, snapshot: Snapshot) -> dict[int, tuple[int, int, int, int]]:
    """Per partition: first and last offset, number of rows, number of distinct offsets."""
    files = filesystem(location)
    found: dict[int, list[pa.ChunkedArray]] = {}
    for live in snapshot.files:
        with files.open_input_file(live.path) as file, pq.ParquetFile(file) as source:
            table = source.read(columns=["partition", "offset"], use_threads=False)
        for partition in pc.unique(table.column("partition")).to_pylist():
            mine = table.filter(pc.equal(table.column("partition"), partition))
            found.setdefault(partition, []).append(mine.column("offset"))
    spans = {}
    for partition, parts in found.items():
        offsets = pa.chunked_array([chunk for part in parts for chunk in part.chunks])
        bounds = pc.min_max(offsets)
        distinct = pc.count_distinct(offsets).as_py()
        spans[partition] = (bounds["min"].as_py(), bounds["max"].as_py(), len(offsets), distinct)
    return spans
