"""Which of a key's records is its newest: the rules of a table of latest rows. Pure.

A key lives in one partition, so that offsets order its records. When a topic gets more partitions,
keys move: a record after the growth is newer than any before it. A growth before the table was made
is not known: between partitions the timestamp decides then. A Debezium event with a lower
`source.lsn` than the row's is a repeat, which a connector sends after a restart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headwater_tier.typed.column_growth import TOMBSTONE

OP = "__op"
LSN = "__source_lsn"
UNAVAILABLE = "__debezium_unavailable_value"
"""Debezium's placeholder for a large value that the change did not touch."""
NO_TIME = -(2**63)
"""Of a record without a timestamp: it is older than any other."""
GROWTH = "__growth"
"""The column of a row's growth, in what `newest_rows` gives."""
GROWTHS = "headwater.latest.growths"
"""JSON: a list of {partitions, starts}, oldest first."""


@dataclass(frozen=True, slots=True)
class Growth:
    """A topic had `partitions` partitions before; `starts` are the first offsets after it."""

    partitions: int
    starts: Mapping[int, int]


def growths_to_property(growths: Sequence[Growth]) -> str:
    """The JSON of the table property."""
    return json.dumps(
        [
            {"partitions": g.partitions, "starts": {str(p): o for p, o in g.starts.items()}}
            for g in growths
        ]
    )


def growths_from_property(text: str | None) -> tuple[Growth, ...]:
    """The growths in a table property."""
    return tuple(
        Growth(row["partitions"], {int(p): o for p, o in row["starts"].items()})
        for row in json.loads(text or "[]")
    )


def growth_of(rows: pa.Table, growths: Sequence[Growth]) -> np.ndarray:
    """Per row, the number of growths before it."""
    count = np.zeros(rows.num_rows, np.int64)
    partitions = rows.column("partition").to_numpy()
    offsets = rows.column("offset").to_numpy()
    for growth in growths:
        after = partitions >= growth.partitions
        for partition, start in growth.starts.items():
            after |= (partitions == partition) & (offsets >= start)
        count += after
    return count


def newer_condition(growths: Sequence[Growth], *, has_lsn: bool) -> str:
    """SQL: the row `s` is newer than the table's row `t`. `s` has its growth as `__growth`."""
    newer = (
        "((s.`partition` = t.`partition` and s.`offset` > t.`offset`) or "
        "(s.`partition` <> t.`partition` and "
        "(t.`timestamp` is null or s.`timestamp` >= t.`timestamp`)))"
    )
    if growths:
        before = " + ".join(_growth_sql(growth) for growth in growths)
        newer = f"(s.`__growth` > ({before}) or (s.`__growth` = ({before}) and {newer}))"
    if has_lsn:
        repeat = f"s.`{LSN}` < t.`{LSN}`"
        newer = f"({newer} and ({repeat}) is not true)"
    return newer


def _growth_sql(growth: Growth) -> str:
    parts = [f"t.`partition` >= {growth.partitions}"]
    parts += [
        f"(t.`partition` = {partition} and t.`offset` >= {start})"
        for partition, start in sorted(growth.starts.items())
    ]
    return f"(case when {' or '.join(parts)} then 1 else 0 end)"


def newest_rows(rows: pa.Table, keys: Sequence[str], growths: Sequence[Growth]) -> pa.Table:
    """One row per key, with `__growth`. Rows come in (partition, offset) order."""
    growth, groups = growth_of(rows, growths), key_codes(rows, keys)
    order = _order(rows, groups, growth)
    if order is not None:
        rows, growth, groups = rows.take(pa.array(order)), growth[order], groups[order]
    kept = _last(groups)
    if LSN in rows.schema.names:
        kept = _without_repeats(rows.column(LSN).to_pylist(), groups)
    found = _with_untouched(rows, groups, kept)
    return found.append_column(GROWTH, pa.array(growth[kept], pa.int64()))


def _order(rows: pa.Table, groups: np.ndarray, growth: np.ndarray) -> np.ndarray | None:
    """The order in which each key's rows were written; None for the one that they have.

    In a partition that is the offsets', whatever the timestamps say. Between partitions, where a
    growth does not tell it, the timestamp of a partition's last row of the key does.
    """
    partitions = rows.column("partition").to_numpy()
    places = groups * (partitions.max(initial=0) + 1) + partitions
    if len(np.unique(places)) == len(np.unique(groups)):
        return None
    spans = np.unique(places * (growth.max() + 1) + growth, return_inverse=True)[1]
    last = np.zeros(spans.max() + 1, np.int64)
    np.maximum.at(last, spans, np.arange(len(spans)))
    times = pc.fill_null(rows.column("timestamp").cast(pa.int64()), NO_TIME).to_numpy()
    offsets = rows.column("offset").to_numpy()
    order: np.ndarray = np.lexsort((offsets, partitions, times[last][spans], growth))
    return order


def overruled(
    rows: pa.Table, deleted: pa.Table, keys: Sequence[str], growths: Sequence[Growth]
) -> np.ndarray:
    """Per row of `deleted`, whether it may be newer than the row of its key in `rows`, which has
    one row per key: it is of another partition and not older, or has a higher `source.lsn`."""
    both = pa.concat_tables([rows.select(keys), deleted.select(keys)])
    codes = key_codes(both, keys)
    own, theirs = codes[: rows.num_rows], codes[rows.num_rows :]
    row_of = np.full(codes.max(initial=0) + 1, -1)
    row_of[own] = np.arange(rows.num_rows)
    at = row_of[theirs]
    found: np.ndarray = at >= 0
    at = at[found]

    def both_columns(name: str, unknown: int) -> tuple[np.ndarray, np.ndarray]:
        columns = (table.column(name).cast(pa.int64()) for table in (rows, deleted))
        old, new = (pc.fill_null(column, unknown).to_numpy() for column in columns)
        return old[at], new[found]

    old_place, place = both_columns("partition", -1)
    old_time, time = both_columns("timestamp", NO_TIME)
    old_growth, growth = growth_of(rows, growths)[at], growth_of(deleted, growths)[found]
    is_later = (growth > old_growth) | ((growth == old_growth) & (time >= old_time))
    wins = (place != old_place) & is_later
    if LSN in rows.schema.names:
        old_lsn, lsn = both_columns(LSN, -1)
        wins |= (old_lsn >= 0) & (lsn > old_lsn)
    found[found] = wins
    return found


def deletes(schema: pa.Schema) -> str:
    """SQL: the row `s` deletes its key."""
    if OP in schema.names:
        return f"s.`{OP}` = 'd'"
    return f"s.`{TOMBSTONE}`"


def key_codes(rows: pa.Table, keys: Sequence[str]) -> np.ndarray:
    """Per row, the number of its key."""
    codes = np.zeros(rows.num_rows, np.int64)
    for name in keys:
        column = rows.column(name).combine_chunks()
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        indices = encoded.indices.to_numpy()
        codes = codes * (len(encoded.dictionary) + 1) + indices
        codes = np.unique(codes, return_inverse=True)[1]
    return codes


def _last(groups: np.ndarray) -> np.ndarray:
    """The last row of each key, in order."""
    reverse = groups[::-1]
    first = np.unique(reverse, return_index=True)[1]
    return np.sort(len(groups) - 1 - first)


def _without_repeats(lsns: Sequence[int | None], groups: np.ndarray) -> np.ndarray:
    """The last row of each key whose lsn is not below one before it; no lsn: the offset decides."""
    kept: dict[int, int] = {}
    for row, group in enumerate(groups.tolist()):
        before = kept.get(group)
        lsn = lsns[row]
        old = None if before is None else lsns[before]
        if lsn is None or old is None or lsn >= old:
            kept[group] = row
    return np.sort(np.fromiter(kept.values(), np.int64, len(kept)))


def _with_untouched(rows: pa.Table, groups: np.ndarray, kept: np.ndarray) -> pa.Table:
    """The kept rows; a placeholder takes the value of the key's row before, if that is at hand."""
    found = rows.take(pa.array(kept))
    if OP not in rows.schema.names:
        return found
    for at, field in enumerate(rows.schema):
        mark = placeholder(field.type)
        if mark is None or not pc.any(pc.equal(found.column(field.name), mark)).as_py():
            continue
        values = rows.column(field.name).to_pylist()
        latest: dict[int, Any] = {}
        wanted = set(kept.tolist())
        filled: dict[int, Any] = {}
        for row, group in enumerate(groups.tolist()):
            if values[row] != mark:
                latest[group] = values[row]
            if row in wanted:
                filled[row] = latest.get(group, mark)
        column = pa.array([filled[row] for row in kept.tolist()], field.type)
        found = found.set_column(at, field, column)
    return found


def quoted(name: str) -> str:
    """SQL: a column's name, whatever its characters: `a.b` is no field of a struct."""
    return "`" + name.replace("`", "``") + "`"


def placeholder(type_: pa.DataType) -> str | bytes | None:
    """What Debezium writes in place of a value of this type that was not touched."""
    if pa.types.is_string(type_):
        return UNAVAILABLE
    return UNAVAILABLE.encode() if pa.types.is_binary(type_) else None
