"""Compacts the small files that turns leave in derived tables, sorted by what readers ask for.

As of the log table, compaction is Headwater's own: read, sort, write, one commit of Add and Remove
with `dataChange=false`, against the snapshot whose files were read.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater_tier.delta import TableStateError
from headwater_tier.live_files import first_within
from headwater_tier.typed.column_growth import Part, source_of
from headwater_tier.typed.derived_files import in_schema, read_derived, write_derived
from headwater_tier.typed.derived_table import DerivedChange, DerivedFile, DerivedTable

FILES_MIN = 64
BYTES_TARGET = 128 << 20
SMALL_PART = 4
"""A file is small below this part of the target."""


def due(
    files: Sequence[DerivedFile], files_min: int = FILES_MIN, bytes_target: int = BYTES_TARGET
) -> tuple[DerivedFile, ...]:
    """The small files to rewrite as one, oldest offsets first; none while there are few. Pure."""
    small = [f for f in files if f.size_bytes * SMALL_PART < bytes_target and f.rows is not None]
    small.sort(key=lambda f: (f.min_offset or 0, f.path))
    chosen = first_within(small, bytes_target)
    is_due = len(chosen) >= files_min or (1 < len(chosen) < len(small))
    return chosen if is_due else ()


def compact_derived(
    table: DerivedTable,
    cluster: Sequence[str],
    *,
    clock: Clock,
    entropy: Entropy,
    files_min: int = FILES_MIN,
    bytes_target: int = BYTES_TARGET,
) -> int:
    """Rewrite small files as one if it is due; the number of files replaced.

    `cluster` names the columns to sort by; none: the key's. Raises CommitUnknownError when another
    commit came first, TableStateError when a file has other rows than its statistics say.
    """
    chosen = due(table.files(), files_min, bytes_target)
    if not chosen:
        return 0
    table.require_whole_files()
    schema = table.schema
    place = table.derived.place
    rows = pa.concat_tables([in_schema(read_derived(place, f.path), schema) for f in chosen])
    expected = sum(f.rows or 0 for f in chosen)
    if rows.num_rows != expected:
        raise TableStateError(
            f"compacting {len(chosen)} files of {table.uri}: they hold {rows.num_rows} rows, but "
            f"{expected} by their statistics; nothing was changed"
        )
    order = [(name, "ascending") for name in sort_columns(schema, cluster)]
    order += [("partition", "ascending"), ("offset", "ascending")]
    written = write_derived(place, rows.sort_by(order), entropy.uuid())
    table.commit(
        DerivedChange("compact", clock.now_ms(), [written], removes=chosen, data_change=False)
    )
    table.refresh()
    return len(chosen)


def sort_columns(schema: pa.Schema, cluster: Sequence[str]) -> list[str]:
    """The columns of the table that files are sorted by: those named, else the key's."""
    sortable = {
        field.name
        for field in schema
        if not pa.types.is_nested(field.type) and field.name not in ("partition", "offset")
    }
    if cluster:
        return [name for name in cluster if name in sortable]
    return [
        field.name
        for field in schema
        if field.name in sortable
        and (source := source_of(field)) is not None
        and source.part is Part.KEY
    ]
