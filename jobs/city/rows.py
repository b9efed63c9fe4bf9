"""The rows of both tables, one by one, against what the devices sent; and the negative control.

Three damaged copies of a table have one fault each: the comparison is worth nothing unless it
names every one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import write_deltalake

from city.feeds import Feed, feeds_of
from city.fields import FACES
from city.flows import City, Figure
from city.ingest import WIRE
from city.tables import read_columns, read_table

FLOW = "rows"
CAPTURE = "capture_time"
SENT = "sent_time"


@dataclass(frozen=True)
class Verdict:
    """Stored rows compared with the truth."""

    rows: int
    missing: int
    doubled: int
    altered: int
    unexpected: int
    """Abnormal records, and ids that the world has not."""

    @property
    def faults(self) -> dict[str, int]:
        """What is wrong, by kind; empty when all is right."""
        names = ("missing", "doubled", "altered", "unexpected")
        return {name: getattr(self, name) for name in names if getattr(self, name)}

    def __str__(self) -> str:
        wrong = ", ".join(f"{count} {name}" for name, count in self.faults.items())
        return f"{self.rows:,} rows" + (f", {wrong}" if wrong else "")


def judge(feed: Feed, stored: pa.Table) -> Verdict:
    """Compare every column of every stored row with what the device sent."""
    wire = WIRE[feed.topic]
    ids = stored["record_id"].to_pylist()
    rows = np.array([_row(text, len(feed.truth)) for text in ids], np.int64)
    known = rows >= 0
    normal = known.copy()
    normal[known] = ~feed.truth.abnormal[rows[known]]
    chosen = np.flatnonzero(normal)
    expected = feed.table(rows[chosen])
    found = stored.take(pa.array(chosen))
    differs = found[SENT].cast(pa.timestamp("ms")).cast(pa.int64()).to_numpy()
    wrong = differs != feed.truth.sent_ms[rows[chosen]]
    for name, key in wire.items():
        wrong |= _differs(name, found[name], expected[key])
    counts = np.bincount(rows[chosen], minlength=len(feed.truth))
    return Verdict(
        rows=len(ids),
        missing=int((counts[~feed.truth.abnormal] == 0).sum()),
        doubled=int(np.maximum(counts - 1, 0).sum()),
        altered=int(wrong.sum()),
        unexpected=int((~normal).sum()),
    )


def _row(record_id: str, count: int) -> int:
    row = int(record_id[1:]) if record_id[1:].isdigit() else -1
    return row if row < count else -1


def _differs(name: str, found: Any, expected: Any) -> Any:
    if name == CAPTURE:
        found = pc.strftime(found.cast(pa.timestamp("s")), "%Y-%m-%d %H:%M:%S")
    if pa.types.is_list(expected.type):
        pairs = [np.array(column.combine_chunks().flatten()) for column in (found, expected)]
        if len(pairs[0]) != len(pairs[1]):
            return np.ones(len(found), bool)
        return (pairs[0] != pairs[1]).reshape(len(found), -1).any(axis=1)
    same = pc.fill_null(pc.equal(found, expected.cast(found.type)), False)
    return ~np.array(same.to_pylist(), bool)


def _drop(rows: pa.Table, at: int) -> pa.Table:
    return pa.concat_tables([rows.slice(0, at), rows.slice(at + 1)])


def _double(rows: pa.Table, at: int) -> pa.Table:
    return pa.concat_tables([rows, rows.slice(at, 1)])


def _alter(rows: pa.Table, at: int) -> pa.Table:
    people = rows["person"].to_pylist()
    people[at] += "x"
    column = pa.array(people, rows.schema.field("person").type)
    return rows.set_column(rows.column_names.index("person"), "person", column)


FAULTS: tuple[tuple[str, Callable[[pa.Table, int], pa.Table], str], ...] = (
    ("a row dropped", _drop, "missing"),
    ("a row doubled", _double, "doubled"),
    ("a person changed", _alter, "altered"),
)


def controls(feed: Feed, stored: pa.Table, scratch: Path) -> list[Figure]:
    """Plant each fault in a copy of the table, and judge the copy."""
    figures = []
    for fault, damage, kind in FAULTS:
        copy = scratch / f"planted-{kind}"
        shutil.rmtree(copy, ignore_errors=True)
        write_deltalake(str(copy), damage(stored, stored.num_rows // 2))
        verdict = judge(feed, read_table(str(copy)))
        shutil.rmtree(copy)
        figures.append(Figure.same(FLOW, f"planted: {fault}", {kind: 1}, verdict.faults))
    return figures


class Rows:
    """The proof of both tables; it has nothing to do while the day runs."""

    name = FLOW

    def start(self, city: City) -> None:
        """Remember the city."""
        self._city = city

    def stop(self) -> None:
        """Nothing runs."""

    def figures(self) -> Sequence[Figure]:
        """Every row of both tables, what is acknowledged, and the planted faults."""
        city = self._city
        figures = []
        for feed in feeds_of(city.world):
            stored = read_columns(city, feed.topic, [*WIRE[feed.topic], SENT, "ingest_time"])
            normal = int((~feed.truth.abnormal).sum())
            verdict = judge(feed, stored)
            acked = int(city.ledger.acked(feed.topic).sum())
            figures.append(Figure.same(FLOW, f"{feed.topic}: acknowledged", len(feed.truth), acked))
            figures.append(
                Figure(
                    FLOW,
                    f"{feed.topic}: stored, column by column",
                    f"{normal:,} rows",
                    str(verdict),
                    not verdict.faults and verdict.rows == normal,
                )
            )
            if feed.topic == FACES:
                figures += controls(feed, stored, city.out)
        return figures
