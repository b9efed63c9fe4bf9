"""Upserts into a table of latest rows by rewriting the files that hold the keys.

For tables with a VARIANT column, which deltalake's MERGE cannot write. One commit removes the files
and adds theirs anew, against the snapshot whose files were read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater_tier.typed.column_growth import TOMBSTONE
from headwater_tier.typed.derived_files import in_schema, read_derived, write_derived
from headwater_tier.typed.derived_table import DerivedChange, DerivedFile, DerivedTable
from headwater_tier.typed.latest_row import GROWTH, OP, Growth, key_codes, newest_rows


def rewrite(
    table: DerivedTable,
    found: pa.Table,
    keys: Sequence[str],
    growths: Sequence[Growth],
    versions: Mapping[str, int],
    *,
    bytes_target: int,
    clock: Clock,
    entropy: Entropy,
) -> int:
    """Upsert `found`, one row per key, and delete the keys of its tombstones; how many changed.

    The same rules as in a MERGE say which row is newer. Raises CommitUnknownError when another
    commit came first.
    """
    table.require_whole_files()
    place, schema = table.derived.place, table.schema
    touched: list[DerivedFile] = []
    kept, rivals = [schema.empty_table()], [schema.empty_table()]
    for live in table.files():
        rows = in_schema(read_derived(place, live.path), schema)
        is_rival = have_keys_of(rows, found, keys)
        if is_rival.any():
            touched.append(live)
            kept.append(rows.filter(pa.array(~is_rival)))
            rivals.append(rows.filter(pa.array(is_rival)))
    before = pa.concat_tables(rivals)
    newest = _newest(before, found, keys, growths)
    rows = pa.concat_tables([*kept, newest]).sort_by([(name, "ascending") for name in keys])
    step = max(1, rows.num_rows * bytes_target // max(rows.nbytes, 1))
    parts = [rows.slice(at, step) for at in range(0, rows.num_rows, step)]
    adds = [write_derived(place, part, entropy.uuid()) for part in parts]
    table.commit(DerivedChange("merge", clock.now_ms(), adds, removes=touched, versions=versions))
    table.refresh()
    return int(found.num_rows) - len(_places(before) & _places(newest))


def _newest(
    before: pa.Table, found: pa.Table, keys: Sequence[str], growths: Sequence[Growth]
) -> pa.Table:
    """The newest row of each key, of those in the table and those that came; none if deleted."""
    none_is_gone = pa.array(np.zeros(before.num_rows, bool))
    has_op = OP in found.schema.names
    is_gone = pc.equal(found.column(OP), "d") if has_op else found.column(TOMBSTONE)
    rivals = before.append_column(TOMBSTONE, none_is_gone)
    coming = in_schema(found, before.schema)
    coming = coming.append_column(TOMBSTONE, pc.fill_null(is_gone, False))
    both = pa.concat_tables([rivals, coming])
    both = both.sort_by([("partition", "ascending"), ("offset", "ascending")])
    newest = newest_rows(both, keys, growths).drop_columns([GROWTH])
    newest = newest.filter(pc.invert(newest.column(TOMBSTONE)))
    return in_schema(newest, before.schema)


def have_keys_of(rows: pa.Table, found: pa.Table, keys: Sequence[str]) -> np.ndarray:
    """Per row, whether `found` has its key; null equals null."""
    both = pa.concat_tables(
        [rows.select(keys), in_schema(found.select(keys), rows.select(keys).schema)]
    )
    codes = key_codes(both, keys)
    return np.isin(codes[: rows.num_rows], codes[rows.num_rows :])


def _places(rows: pa.Table) -> set[tuple[int, int]]:
    columns = (rows.column(name).to_pylist() for name in ("partition", "offset"))
    return set(zip(*columns, strict=True))
