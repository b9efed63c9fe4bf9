"""The tables of `headwater transactions`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from headwater.cli.console_tables import Cell, Column, fitting_table, table
from headwater.cli.partition_arguments import name_of
from headwater.client.admin.open_transactions import times_out_in_ms
from headwater.client.admin.transactions import NO_TIMEOUT_MS
from headwater.client.transaction_values import (
    HangingTransaction,
    MarkerFailure,
    TransactionBlocker,
    TransactionDescription,
)
from headwater.client.values import TopicPartition
from headwater.wire.sink_names import is_participant

PARTITIONS_SHOWN = 20
UNKNOWN = "-"
HANGING = "hanging"
BLOCKER_COLUMNS = (
    Column("partition"),
    Column("transactional id"),
    Column(">producer"),
    Column(">epoch", 4),
    Column("state"),
    Column(">age"),
    Column(">times out in", 1),
    Column(">records", 2),
    Column(">first offset", 5),
    Column("principal", 6),
    Column("client", 8),
    Column("host", 3),
    Column(">coordinator", 7),
    Column("marker"),
)
HANGING_COLUMNS = (
    Column("partition"),
    Column(">producer"),
    Column(">epoch"),
    Column(">coordinator epoch", 3),
    Column(">start offset"),
    Column(">last batch", 1),
    Column("transactional id", 2),
)


def blocker_table(rows: Sequence[TransactionBlocker], width: int) -> Table:
    """Of each blocked partition, the transaction that holds its last stable offset. The last column
    is there when a marker fails."""
    columns = BLOCKER_COLUMNS if any(r.marker_failure for r in rows) else BLOCKER_COLUMNS[:-1]
    lines: list[Sequence[Cell]] = [
        (
            f"{row.topic}-{row.partition}",
            row.transactional_id or UNKNOWN,
            str(row.producer_id),
            str(row.producer_epoch),
            Text(HANGING, "red") if row.is_hanging else row.state or UNKNOWN,
            duration(row.age_ms),
            time_left(row.times_out_in_ms),
            f"{max(0, row.high_watermark - row.last_stable_offset):,}",
            str(row.first_offset),
            row.principal or UNKNOWN,
            row.client_id or UNKNOWN,
            row.client_host or UNKNOWN,
            UNKNOWN if row.coordinator is None else str(row.coordinator),
            Text(_failure(row.marker_failure), "red") if row.marker_failure else UNKNOWN,
        )
        for row in rows
    ]
    return fitting_table("readers of read_committed wait here", columns, lines, width)


def hanging_table(rows: Iterable[HangingTransaction], now_ms: int, width: int) -> Table:
    """Transactions that no coordinator will end."""
    lines: list[Sequence[Cell]] = [
        (
            f"{row.topic}-{row.partition}",
            str(row.producer_id),
            str(row.producer_epoch),
            str(row.coordinator_epoch),
            str(row.first_offset),
            f"{duration(max(0, now_ms - row.last_timestamp_ms))} ago",
            row.transactional_id or UNKNOWN,
        )
        for row in rows
    ]
    return fitting_table("hanging transactions", HANGING_COLUMNS, lines, width)


def description_table(described: TransactionDescription, now_ms: int) -> Table:
    """One transactional id: a row per fact."""
    shown = table(described.transactional_id, "fact, value")
    shown.show_header = False
    for fact, value in _facts(described, now_ms):
        shown.add_row(fact, value)
    return shown


def _facts(described: TransactionDescription, now_ms: int) -> list[tuple[str, str]]:
    d = described
    facts = [
        ("state", d.state),
        ("producer", f"{d.producer_id}, epoch {d.producer_epoch}"),
        ("coordinator", f"broker {d.coordinator}"),
        ("timeout", _timeout_of(d)),
    ]
    if d.start_ms is not None:
        age = duration(max(0, now_ms - d.start_ms))
        facts.append(("began", f"{clock_time(d.start_ms)}, {age} ago"))
    left_ms = times_out_in_ms(d, now_ms)
    if left_ms is not None:
        facts.append(("times out in", time_left(left_ms)))
    if d.last_update_ms is not None:
        facts.append((f"{d.state} since", clock_time(d.last_update_ms)))
    client = (("principal", d.principal), ("client id", d.client_id), ("host", d.client_host))
    facts += [(fact, value) for fact, value in client if value]
    if d.partitions:
        facts.append(("partitions", _names(d.partitions)))
    facts += [(f"marker of {name_of(f.partition)}", _failure(f)) for f in d.marker_failures]
    return facts


def _names(partitions: Sequence[TopicPartition]) -> str:
    shown = ", ".join(name_of(tp) for tp in sorted(partitions)[:PARTITIONS_SHOWN])
    left_out = len(partitions) - PARTITIONS_SHOWN
    return f"{shown} and {left_out} more" if left_out > 0 else shown


def _failure(failure: MarkerFailure) -> str:
    detail = f": {failure.detail}" if failure.detail else ""
    return f"{failure.error}{detail} ({failure.attempts} attempts)"


def _timeout_of(described: TransactionDescription) -> str:
    if is_participant(described.transactional_id):
        return "that of its epoch (headwater sinks show)"
    if described.timeout_ms == NO_TIMEOUT_MS:
        return "never (two-phase commit)"
    return duration(described.timeout_ms)


def time_left(left_ms: int | None) -> str:
    """Time to a timeout, or since it; `-`: there is none."""
    if left_ms is None:
        return UNKNOWN
    return duration(left_ms) if left_ms >= 0 else f"overdue for {duration(-left_ms)}"


def clock_time(at_ms: int) -> str:
    """`2026-11-24 22:18:04+00:00`, in the local time zone."""
    at = dt.datetime.fromtimestamp(at_ms / 1000).astimezone()
    return at.isoformat(sep=" ", timespec="seconds")


def duration(ms: int) -> str:
    """`250 ms`, `12.3 s`, `4 min`, `3 h`, `2 d`."""
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 100_000:
        return f"{ms / 1_000:.1f} s"
    for unit_ms, unit, most in ((60_000, "min", 90), (3_600_000, "h", 48)):
        if ms < most * unit_ms:
            return f"{ms // unit_ms} {unit}"
    return f"{ms // 86_400_000} d"
