"""Filters as the offsets to read: nothing is left out that a filter lets through."""

from __future__ import annotations

import operator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater_spark.source.positions import Position
from headwater_spark.source.pushdown import Comparison, from_starts, inside, read_window

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
WHOLE = Position({A0: 10, A1: 0, B0: 5}, {A0: 20, A1: 9, B0: 7}, {"a": "id-a", "b": "id-b"})
AT = datetime(2026, 11, 24, 10, 0, 0, 500, UTC)  # half a millisecond after the second
AT_MS = 1795514400000


def backlog(position: Position) -> dict:
    return {
        tp: (position.start[tp], end)
        for tp, end in position.end.items()
        if end > position.start[tp]
    }


@pytest.mark.parametrize(
    ("filters", "left"),
    [
        ([], {A0: (10, 20), A1: (0, 9), B0: (5, 7)}),
        ([Comparison("partition", "=", 0)], {A0: (10, 20), B0: (5, 7)}),
        ([Comparison("partition", ">", 0)], {A1: (0, 9)}),
        ([Comparison("partition", "in", (1, 3))], {A1: (0, 9)}),
        ([Comparison("topic", "=", "b")], {B0: (5, 7)}),
        ([Comparison("topic", "=", "b"), Comparison("partition", "=", 1)], {}),
        ([Comparison("offset", "=", 6)], {A1: (6, 7), B0: (6, 7)}),
        ([Comparison("offset", "in", (3, 12))], {A0: (10, 13), A1: (3, 9), B0: (5, 7)}),
        ([Comparison("offset", ">", 6), Comparison("offset", "<=", 11)],
         {A0: (10, 12), A1: (7, 9)}),
        ([Comparison("offset", ">=", 100)], {}),
        ([Comparison("offset", "<", -5)], {}),
        ([Comparison("value", "=", b"x"), Comparison("offset", "=", None)],
         {A0: (10, 20), A1: (0, 9), B0: (5, 7)}),
        ([Comparison("offset", "in", ())], {A0: (10, 20), A1: (0, 9), B0: (5, 7)}),
    ],
)  # fmt: skip
def test_filters_on_partitions_and_offsets(filters: list[Comparison], left: dict) -> None:
    assert backlog(inside(WHOLE, read_window(filters))) == left


OPERATORS = {
    "=": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


@given(
    st.lists(st.tuples(st.sampled_from(sorted(OPERATORS)), st.integers(-2, 25)), max_size=4),
    st.integers(0, 20),
    st.integers(0, 20),
)
def test_no_offset_is_left_out_that_passes(
    filters: list[tuple[str, int]], start: int, size: int
) -> None:
    position = Position({A0: start}, {A0: start + size}, {"a": "id"})
    window = read_window([Comparison("offset", name, value) for name, value in filters])
    cut = inside(position, window)
    passing = {
        offset
        for offset in range(start, start + size)
        if all(OPERATORS[name](offset, value) for name, value in filters)
    }
    read = set(range(cut.start[A0], cut.end[A0]))
    assert passing <= read <= set(range(start, start + size))


@pytest.mark.parametrize(
    ("name", "value", "first_ms"),
    [
        (">=", AT, AT_MS + 1),
        (">", AT, AT_MS + 1),
        (">", AT - timedelta(microseconds=500), AT_MS + 1),
        (">=", AT - timedelta(microseconds=500), AT_MS),
        ("=", AT, AT_MS + 1),
        ("in", (AT + timedelta(days=1), AT), AT_MS + 1),
        ("<", AT, None),
        ("<=", AT, None),
        (">", AT.replace(tzinfo=None), None),
        (">", "2026-11-24", None),
    ],
)
def test_only_a_lower_limit_of_time_leaves_offsets_out(
    name: str, value: object, first_ms: int | None
) -> None:
    assert read_window([Comparison("timestamp", name, value)]).first_ms == first_ms


def test_the_start_of_a_time_is_never_before_the_start_nor_after_the_end() -> None:
    cut = from_starts(WHOLE, {A0: 3, A1: 4, B0: -1})
    assert backlog(cut) == {A0: (10, 20), A1: (4, 9)}
    assert dict(cut.end) == dict(WHOLE.end)
