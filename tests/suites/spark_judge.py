"""Whether a Spark query's output is exactly its input, transformed: the judge of `suites.spark`.

It only compares what was recorded. Every input row has a number and a key; the output is a pure
function of them (`transformed`), so it does not matter how often a batch ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

KEYS = 8
SHOWN = 5

MISSING = "missing"
DUPLICATE = "duplicate"
UNEXPECTED = "unexpected"
OUT_OF_ORDER = "out of order"
VANISHED = "vanished"
EARLY = "early"
DISAGREEMENT = "disagreement"
OPEN = "open"
STUCK = "stuck"

CLASSES = {
    MISSING: "an input row has no output row",
    DUPLICATE: "an input row has several output rows",
    UNEXPECTED: "an output row has no input row",
    OUT_OF_ORDER: "the rows of one key are in another order than their input",
    VANISHED: "a read_committed reader saw a row that is not in the topic at the end",
    EARLY: "a read_committed reader saw a row of an epoch before the epoch's commit began",
    DISAGREEMENT: "the topic and the table have different rows",
    OPEN: "an epoch is open or prepared after the end",
    STUCK: "the query did not go on in time after a fault",
}


class Finding(NamedTuple):
    """An anomaly, with the rows that prove it."""

    kind: str
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


class Output(NamedTuple):
    """An output row: in its partition, in the order of offsets."""

    partition: int
    offset: int
    key: str
    value: str


class Seen(NamedTuple):
    """A row as the concurrent reader of committed records got it."""

    at_s: float
    value: str


def key_of(number: int) -> str:
    """The key of an input row."""
    return f"key-{number % KEYS}"


def transformed(number: int) -> str:
    """The output value of an input row."""
    return f"{number}:{number * 7919 % 10_007}"


def number_of(value: str) -> int:
    """The input row of an output value."""
    return int(value.partition(":")[0])


def judged(
    count: int,
    topic: Sequence[Output],
    seen: Iterable[Seen] = (),
    table: Sequence[str] | None = None,
    commits_s: Mapping[str, float] | None = None,
    *,
    name: str = "topic",
    every: int = 1,
) -> list[Finding]:
    """The anomalies of a run of `count` input rows. `table`: values of the Delta table, if there is
    one. `commits_s`: output value -> when the first commit of its epoch began. `name`: of the topic
    in the findings. `every`: it has one of so many input rows, from the first on."""
    expected = {transformed(number): number for number in range(0, count, every)}
    values = [row.value for row in topic]
    found = [*_compared(name, expected, values), *_order(name, topic)]
    if table is not None:
        found += _compared("table", expected, table)
        differing = sorted((Counter(table) - Counter(values)) + (Counter(values) - Counter(table)))
        if differing:
            found.append(_finding(DISAGREEMENT, f"{name} and table", differing))
    held = set(values)
    early, vanished = [], []
    for row in seen:
        if row.value not in held:
            vanished.append(row.value)
        elif commits_s is not None and row.at_s < commits_s.get(row.value, 0.0):
            early.append(row.value)
    found += [_finding(VANISHED, f"reader of the {name}", vanished)] if vanished else []
    found += [_finding(EARLY, f"reader of the {name}", early)] if early else []
    return found


def _compared(where: str, expected: Mapping[str, int], values: Sequence[str]) -> list[Finding]:
    counts = Counter(values)
    missing = [value for value in expected if value not in counts]
    duplicates = [value for value, times in counts.items() if times > 1 and value in expected]
    unexpected = [value for value in counts if value not in expected]
    rows = ((MISSING, missing), (DUPLICATE, duplicates), (UNEXPECTED, unexpected))
    return [_finding(kind, where, found) for kind, found in rows if found]


def _order(name: str, topic: Sequence[Output]) -> list[Finding]:
    """Each key is in one partition, and its numbers rise."""
    found = []
    last: dict[str, tuple[int, int]] = {}
    for row in sorted(topic):
        number = number_of(row.value)
        partition, before = last.get(row.key, (row.partition, -1))
        if row.partition != partition or number < before or row.key != key_of(number):
            found.append(f"{row.key} {row.value} at {row.partition}-{row.offset}")
        last[row.key] = (row.partition, max(number, before))
    return [_finding(OUT_OF_ORDER, name, found)] if found else []


def _finding(kind: str, where: str, rows: Sequence[str]) -> Finding:
    shown = ", ".join(rows[:SHOWN]) + (", ..." if len(rows) > SHOWN else "")
    return Finding(kind, f"{where}, {len(rows)} rows: {shown}")
