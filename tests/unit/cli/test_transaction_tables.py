"""The tables of `headwater transactions`: what they show, and in which words."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console
from rich.table import Table

from headwater import TopicPartition
from headwater.cli.transaction_tables import (
    blocker_table,
    description_table,
    duration,
    hanging_table,
)
from headwater.client.admin.transactions import NO_TIMEOUT_MS
from headwater.client.transaction_values import (
    HangingTransaction,
    MarkerFailure,
    TransactionBlocker,
    TransactionDescription,
)

NOW_MS = 1_700_000_000_000
FAILURE = MarkerFailure(TopicPartition("t", 0), "NOT_ENOUGH_REPLICAS", "1 of 2", NOW_MS, 4)
BLOCKER: dict[str, Any] = {
    "topic": "t",
    "partition": 0,
    "last_stable_offset": 5,
    "high_watermark": 1_240,
    "producer_id": 4_711,
    "producer_epoch": 3,
    "first_offset": 5,
    "last_timestamp_ms": NOW_MS,
    "is_hanging": False,
    "age_ms": 42_000,
    "transactional_id": "pay",
    "state": "PrepareCommit",
    "coordinator": 2,
    "timeout_ms": 60_000,
    "times_out_in_ms": None,
    "principal": "User:app",
    "client_id": "app-1",
    "client_host": "10.0.0.9",
    "marker_failure": FAILURE,
}
DESCRIBED: dict[str, Any] = {
    "transactional_id": "pay",
    "producer_id": 4_711,
    "producer_epoch": 3,
    "state": "Ongoing",
    "coordinator": 2,
    "timeout_ms": 60_000,
    "start_ms": NOW_MS - 90_000,
    "partitions": tuple(TopicPartition("t", n) for n in range(25)),
    "principal": "User:app",
    "client_id": "app-1",
    "client_host": "10.0.0.9",
    "last_update_ms": NOW_MS - 1_000,
    "marker_failures": (FAILURE,),
}


def blocker(**changes: object) -> TransactionBlocker:
    return TransactionBlocker(**{**BLOCKER, **changes})


def described(**changes: object) -> TransactionDescription:
    return TransactionDescription(**{**DESCRIBED, **changes})


def shown(table: Table, width: int = 300) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(table)
    return out.getvalue()


def test_a_blocker_is_one_line() -> None:
    text = shown(blocker_table([blocker()], 300))
    for word in ("t-0", "pay", "4711", "PrepareCommit", "42.0 s", "1,235", "10.0.0.9", "User:app"):
        assert word in text, text
    assert "NOT_ENOUGH_REPLICAS: 1 of 2 (4 attempts)" in text
    hanging = blocker(is_hanging=True, transactional_id=None, marker_failure=None)
    assert "hanging" in shown(blocker_table([hanging], 300))
    overdue = blocker(times_out_in_ms=-30_000)
    assert "overdue for 30.0 s" in shown(blocker_table([overdue], 300))


def test_a_narrow_terminal_keeps_what_matters_most() -> None:
    text = shown(blocker_table([blocker(marker_failure=None)], 80), 80)
    assert sum(bool(line.strip()) for line in text.splitlines()) == 4, text
    for word in ("t-0", "pay", "4711", "42.0 s", "PrepareCommit"):
        assert word in text, text
    assert "app-1" not in text and "marker" not in text


def test_a_description_has_a_row_per_fact() -> None:
    text = shown(description_table(described(), NOW_MS))
    assert "overdue for 30.0 s" in text and "90.0 s ago" in text
    assert "t-0, t-1" in text and "and 5 more" in text
    assert "marker of t-0" in text and "User:app" in text
    prepared = described(timeout_ms=NO_TIMEOUT_MS, principal=None, marker_failures=())
    text = shown(description_table(prepared, NOW_MS))
    assert "never (two-phase commit)" in text and "overdue" not in text
    assert "principal" not in text and "marker of" not in text


def test_a_hanging_transaction_has_what_abort_asks_for() -> None:
    row = HangingTransaction("t", 0, 4_711, 3, -1, 55, NOW_MS - 3_600_000, None)
    text = shown(hanging_table([row], NOW_MS, 200))
    for word in ("t-0", "4711", "55", "60 min ago"):
        assert word in text, text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1.0 s"),
        (99_999, "100.0 s"),
        (100_000, "1 min"),
        (5_399_999, "89 min"),
        (5_400_000, "1 h"),
        (172_799_999, "47 h"),
        (172_800_000, "2 d"),
    ],
)
def test_times_have_one_unit(ms: int, text: str) -> None:
    assert duration(ms) == text
