"""Input and output of programs that copy each record to the same partition of another topic."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from suites import judge


class Difference(NamedTuple):
    """How an output partition differs from what its input partition asks for."""

    partition: int
    missing: tuple[str, ...]
    duplicated: tuple[str, ...]
    unexpected: tuple[str, ...]
    first_out_of_order: int | None
    """Index of the first value that is not at its place."""


def line(number: int, partitions: int) -> tuple[int, str]:
    """(partition, text) of an input line."""
    return number % partitions, f"line-{number}"


def same(value: str) -> str:
    """The identity: a copier changes nothing."""
    return value


def difference(
    bootstrap: str, source: str, output: str, transformed: Callable[[str], str] = same
) -> list[Difference]:
    """The partitions whose committed output is not the transformed input, in order."""
    wanted = _by_partition(judge.rows(bootstrap, source))
    seen = _by_partition(judge.rows(bootstrap, output))
    found = []
    for partition, values in sorted(wanted.items()):
        expected = [transformed(value) for value in values]
        row = compared(partition, expected, seen.get(partition, []))
        if row is not None:
            found.append(row)
    return found


def compared(partition: int, expected: Sequence[str], seen: Sequence[str]) -> Difference | None:
    """How `seen` differs from `expected`; None when it does not."""
    if list(expected) == list(seen):
        return None
    wanted, found = Counter(expected), Counter(seen)
    misplaced = (
        i for i, pair in enumerate(zip(expected, seen, strict=False)) if pair[0] != pair[1]
    )
    return Difference(
        partition,
        tuple((wanted - found).elements()),
        tuple(value for value in wanted if found[value] > wanted[value]),
        tuple(value for value in found if value not in wanted),
        next(misplaced, min(len(expected), len(seen))),
    )


def _by_partition(rows: Sequence[judge.Row]) -> Mapping[int, list[str]]:
    values: dict[int, list[str]] = {}
    for row in rows:
        values.setdefault(row.partition, []).append(row.value.decode())
    return values
