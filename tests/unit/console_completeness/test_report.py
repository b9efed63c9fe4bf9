"""Records of `headwater audit --to` as minutes; anyone's records as none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.client.values import ConsumerRecord
from headwater_gateway.console.completeness.report import Count, State, TopicSum, report_of
from headwater_tier.audit.minutes import MinuteRow
from headwater_tier.audit.report_topic import document

MINUTE_MS = 1_764_000_000_000
TEXTS: dict[str, Any] = document(MinuteRow("flights", MINUTE_MS, 100, {"table": 97}, True))


def record(value: bytes | None, offset: int = 0) -> ConsumerRecord:
    return ConsumerRecord("audit-minutes", 0, offset, 0, 0, b"k", value, [], 0)


def written(row: MinuteRow, offset: int = 0) -> ConsumerRecord:
    return record(json.dumps(document(row)).encode(), offset)


def test_a_minute_is_what_was_written_last() -> None:
    rows = [
        written(MinuteRow("flights", MINUTE_MS, 90, {"group g": 80}, False), 0),
        written(MinuteRow("flights", MINUTE_MS, 100, {"group g": 100, "table": 97}, True), 5),
        written(MinuteRow("flights", MINUTE_MS + 60_000, 7, {"group g": 0}, False), 4),
    ]
    for records in (rows, rows[::-1]):
        report = report_of(records)
        differs, still_open = sorted(report.minutes, key=lambda m: m.minute_ms)
        assert differs.counts == (Count("group g", 100, 0), Count("table", 97, -3))
        assert [differs.state, still_open.state] == [State.DIFFERS, State.OPEN]
        assert report.topics == (TopicSum("flights", 1, 1, 107, MINUTE_MS + 60_000),)
        assert report.strange == 0


def test_a_minute_that_is_over_and_has_all_is_equal() -> None:
    [minute] = report_of([written(MinuteRow("t", MINUTE_MS, 3, {"table": 3}, True))]).minutes
    assert minute.state is State.EQUAL and minute.minute_ms == MINUTE_MS


@pytest.mark.parametrize(
    "change",
    [
        {"topic": 7},
        {"topic": None},
        {"minute": "yesterday"},
        {"minute": 7},
        {"minute": "2026-11-28T10:00:00"},
        {"produced": -1},
        {"produced": "3"},
        {"produced": 2**64},
        {"places": [1]},
        {"places": {"table": None}},
        {"differing": 3},
        {"differing": {"table": "many"}},
    ],
    ids=str,
)
def test_what_is_no_minute_is_counted(change: dict[str, Any]) -> None:
    report = report_of([record(json.dumps({**TEXTS, **change}).encode())])
    assert report.strange == 1 and report.minutes == ()


@pytest.mark.parametrize("value", [b"", b"\xff", b"7", b"[]", b"null", b"[" * 100_000, b"{}"])
def test_any_bytes_are_no_minute(value: bytes) -> None:
    assert report_of([record(value)]).strange == 1


def test_a_minute_that_was_taken_out_is_not_strange() -> None:
    assert report_of([record(None)]).strange == 0
