"""The tables of `headwater sinks`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from headwater.cli.console_tables import Cell, Column, fitting_table, table
from headwater.cli.partition_arguments import name_of
from headwater.cli.transaction_tables import clock_time, duration, time_left
from headwater.client.sink_values import SinkDescription, SinkEpoch
from headwater.wire.epoch_values import EpochState

UNKNOWN = "-"
NEXT_OWNER = "the next query that writes"
PARTITIONS_SHOWN = 5
SINK_COLUMNS = (
    Column("sink"),
    Column("kind", 3),
    Column(">last epoch"),
    Column("not complete"),
    Column(">for", 1),
    Column(">last change", 2),
    Column("owner", 4),
    Column(">ticket", 6),
    Column(">coordinator", 7),
)
PARTICIPANT_COLUMNS = (
    Column(">task"),
    Column(">attempt", 3),
    Column(">slot", 2),
    Column(">producer", 4),
    Column(">epoch", 5),
    Column("state"),
    Column("partitions without a marker", 1),
)


def sink_table(sinks: Iterable[SinkDescription], now_ms: int, width: int) -> Table:
    """A row per sink."""
    lines: list[Sequence[Cell]] = [
        (
            sink.sink,
            sink.kind,
            UNKNOWN if sink.last_epoch is None else str(sink.last_epoch),
            _epochs(sink),
            _oldest(sink, now_ms),
            _since(sink.last_update_ms, now_ms),
            sink.owner or NEXT_OWNER,
            str(sink.ticket),
            str(sink.coordinator),
        )
        for sink in sinks
    ]
    return fitting_table("sinks", SINK_COLUMNS, lines, width)


def _epochs(sink: SinkDescription) -> Cell:
    shown = Text(", ").join(
        Text(
            f"{epoch.epoch} {epoch.state}",
            "yellow" if epoch.state == EpochState.PREPARED.label else "",
        )
        for epoch in sink.epochs
    )
    return shown if sink.epochs else UNKNOWN


def _oldest(sink: SinkDescription, now_ms: int) -> str:
    starts = [epoch.start_ms for epoch in sink.epochs if epoch.start_ms >= 0]
    return duration(max(0, now_ms - min(starts))) if starts else UNKNOWN


def _since(at_ms: int | None, now_ms: int) -> str:
    return UNKNOWN if at_ms is None else f"{duration(max(0, now_ms - at_ms))} ago"


def description_table(sink: SinkDescription, now_ms: int) -> Table:
    """One sink: a row per fact."""
    shown = table(sink.sink, "fact, value")
    shown.show_header = False
    facts = [
        ("kind", sink.kind),
        ("owner", sink.owner or NEXT_OWNER),
        ("last committed epoch", "none" if sink.last_epoch is None else str(sink.last_epoch)),
        ("run", f"{sink.run}, ticket {sink.ticket}"),
        ("earlier runs", str(sink.retired_runs)),
        ("slots", str(sink.slots)),
        ("coordinator", f"broker {sink.coordinator}"),
    ]
    if sink.last_update_ms is not None:
        at = clock_time(sink.last_update_ms)
        facts.append(("last change", f"{at}, {_since(sink.last_update_ms, now_ms)}"))
    if not sink.epochs:
        facts.append(("epochs that are not complete", "none"))
    for fact, value in facts:
        shown.add_row(fact, value)
    return shown


def epoch_table(epoch: SinkEpoch, now_ms: int, width: int) -> Table:
    """The participants of an epoch that is not complete."""
    title = f"epoch {epoch.epoch}: {epoch.state}, run {epoch.run}, ticket {epoch.ticket}"
    if epoch.start_ms >= 0:
        title += f", began {_since(epoch.start_ms, now_ms)}"
    if epoch.deadline_ms is not None:
        title += f", is aborted in {time_left(epoch.deadline_ms - now_ms)}"
    lines: list[Sequence[Cell]] = [
        (
            str(p.task),
            str(p.attempt),
            str(p.slot),
            str(p.producer_id),
            str(p.producer_epoch),
            p.state,
            _partitions([name_of(tp) for tp in p.partitions]),
        )
        for p in sorted(epoch.participants, key=lambda p: (p.task, p.attempt))
    ]
    return fitting_table(title, PARTICIPANT_COLUMNS, lines, width)


def _partitions(names: list[str]) -> str:
    shown = ", ".join(names[:PARTITIONS_SHOWN]) or UNKNOWN
    left_out = len(names) - PARTITIONS_SHOWN
    return f"{shown} and {left_out} more" if left_out > 0 else shown
