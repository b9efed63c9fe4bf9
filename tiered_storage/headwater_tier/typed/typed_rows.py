"""Rows of a typed table by places and keys, for the table of latest rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater_tier.typed.derived_files import in_schema, read_derived
from headwater_tier.typed.derived_table import DerivedFile, DerivedTable
from headwater_tier.typed.latest_row import GROWTH, LSN, Growth
from headwater_tier.typed.rewriting import have_keys_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
STATISTICS_STEP = timedelta(milliseconds=1)
"""Writers of Delta cut timestamps in statistics to milliseconds."""


def typed_rows(
    typed: DerivedTable,
    spans: Mapping[int, tuple[int, int]],
    *,
    among: pa.Table | None = None,
    may_matter: Callable[[DerivedFile], bool] = lambda _file: True,
    kept: Callable[[pa.Table], pa.Table] = lambda rows: rows,
) -> pa.Table:
    """The typed table's rows in offset ranges, in (partition, offset) order.

    `among` keeps those that have one of its rows in its columns, `kept` chooses among the rows of
    a file, `may_matter` among the files.
    """
    typed.require_whole_files()
    schema = typed.schema
    found = [schema.empty_table()]
    for live in typed.files():
        if not any(live.may_hold(p, start, end) for p, (start, end) in spans.items()):
            continue
        if not may_matter(live):
            continue
        rows = read_derived(typed.derived.place, live.path)
        wanted = np.zeros(rows.num_rows, bool)
        partitions = rows.column("partition").to_numpy()
        offsets = rows.column("offset").to_numpy()
        for partition, (start, end) in spans.items():
            wanted |= (partitions == partition) & (offsets >= start) & (offsets < end)
        rows = in_schema(rows.filter(pa.array(wanted)), schema)
        found.append(kept(rows if among is None else matching(rows, among)))
    rows = pa.concat_tables(found)
    return rows.sort_by([("partition", "ascending"), ("offset", "ascending")])


def matching(rows: pa.Table, among: pa.Table) -> pa.Table:
    """The rows that have a row of `among` in its columns."""
    return rows.filter(pa.array(have_keys_of(rows, among, among.schema.names)))


def spans_of(rows: pa.Table, within: Mapping[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """The offset range per partition of rows, cut to ranges."""
    found = {}
    partitions, offsets = rows.column("partition").to_numpy(), rows.column("offset").to_numpy()
    for partition, (start, end) in within.items():
        mine = offsets[partitions == partition]
        mine = mine[(mine >= start) & (mine < end)]
        if len(mine):
            found[partition] = (int(mine.min()), int(mine.max()) + 1)
    return found


def at_places(rows: pa.Table, places: pa.Table) -> pa.Table:
    """The rows whose partition and offset are among `places`."""
    wanted = set(zip(places["partition"].to_pylist(), places["offset"].to_pylist(), strict=True))
    found = zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True)
    return rows.filter(pa.array([place in wanted for place in found], pa.bool_()))


def newer_files(
    rows: pa.Table, growths: Sequence[Growth], partitions: int
) -> Callable[[DerivedFile], bool]:
    """Whether a file may hold a record that is newer than one of `rows`, as `overruled` says."""
    oldest = _oldest(rows, growths)
    lsn = pc.min(rows[LSN]).as_py() if LSN in rows.schema.names else None

    def may_matter(live: DerivedFile) -> bool:
        if lsn is not None and (live.max_lsn is None or live.max_lsn > lsn):
            return True
        if partitions == 1:
            return False
        return oldest is None or live.max_timestamp is None or live.max_timestamp >= oldest

    return may_matter


def _oldest(rows: pa.Table, growths: Sequence[Growth]) -> datetime | None:
    """The lowest timestamp; None if a record of a lower one may be newer than one of the rows."""
    if rows["timestamp"].null_count or pc.min(rows[GROWTH]).as_py() < len(growths):
        return None
    low = pc.min(rows["timestamp"]).cast(pa.int64()).as_py()
    try:
        return EPOCH + timedelta(microseconds=low) - STATISTICS_STEP
    except OverflowError:
        return None
