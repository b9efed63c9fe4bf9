"""The tables of `headwater status`: brokers, partitions, blocked readers, groups, kills."""

from __future__ import annotations

from datetime import datetime

from rich.console import Group
from rich.table import Table
from rich.text import Text

from headwater.cli.blocked_readers import SHOWN_AFTER_MS
from headwater.cli.console_tables import Cell, Column, fitting_table
from headwater.cli.status_view import BrokerEvent, BrokerRow, PartitionRow, Rates, StatusView
from headwater.cli.transaction_tables import duration, time_left
from headwater.local.cluster_file import ClusterFile

BAR_CELLS = 10
EVENTS_SHOWN = 4
BROKER_COLUMNS = (
    Column("broker"),
    Column("address"),
    Column("state"),
    Column(">leaders"),
    Column(">replicas", 2),
    Column(">on disk", 1),
    Column(">memory", 3),
    Column(">in/s"),
    Column(">out/s"),
)
PARTITION_COLUMNS = (
    Column("partition"),
    Column(">leader"),
    Column("in sync"),
    Column(">lag", 1),
    Column(">records/s"),
    Column(">start", 3),
    Column(">end", 2),
    Column("in Delta"),
)
BLOCKED_COLUMNS = (
    Column("partition"),
    Column("transactional id"),
    Column("state", 2),
    Column(">open for"),
    Column(">times out in", 1),
    Column(">records", 3),
    Column(">producer", 4),
    Column("host", 5),
)
GROUP_COLUMNS = (
    Column("group"),
    Column("state", 1),
    Column(">members", 2),
    Column("topic"),
    Column(">partitions", 3),
    Column(">lag"),
)


def render(
    view: StatusView, rates: Rates, cluster: ClusterFile, *, internal: bool, width: int
) -> Group:
    """The tables of one view, for a terminal of this width."""
    head = Text(f"cluster {view.cluster_id}\nbootstrap servers {cluster.bootstrap_servers}")
    rows = [p for p in view.partitions if internal or not p.topic.startswith("__")]
    if any(broker.answers for broker in view.brokers):
        partitions = _partition_table(rows, rates, width)
    else:
        partitions = Text("no broker answers: its topics are not known", "red")
    brokers = _broker_table(view.brokers, rates, width)
    more = (*_blocked_table(view, width), *_group_table(view, width), *_last_events(view.events))
    return Group(head, brokers, partitions, *more)


def _last_events(events: tuple[BrokerEvent, ...]) -> list[Text]:
    """The last kills and restarts, newest first."""
    lines = []
    for event in reversed(events[-EVENTS_SHOWN:]):
        at = datetime.fromtimestamp(event.at_ms / 1000).astimezone().strftime("%H:%M:%S")
        away = f" after {event.away_ms / 1000:.1f} s" if event.away_ms >= 0 else ""
        style = "red" if event.kind == "gone" else "green"
        lines.append(Text(f"{at} broker {event.broker_id} {event.kind}{away}", style))
    return lines


def _broker_table(brokers: tuple[BrokerRow, ...], rates: Rates, width: int) -> Table:
    rows: list[list[Cell]] = []
    for b in brokers:
        values = (
            str(b.leaders),
            str(b.replicas),
            _bytes(b.size_bytes),
            _bytes(b.rss_bytes),
            _bytes(rates.bytes_in.get(b.broker_id, 0)),
            _bytes(rates.bytes_out.get(b.broker_id, 0)),
        )
        rows.append(
            [
                f"{b.broker_id}{' *' if b.controller else ''}",
                b.address,
                Text("ready", "green") if b.ready else Text(b.problem or "starting", "red"),
                *(values if b.answers else ("-" for _ in values)),
            ]
        )
    return fitting_table("brokers (* is the controller)", BROKER_COLUMNS, rows, width)


def _partition_table(partitions: list[PartitionRow], rates: Rates, width: int) -> Table | Text:
    if not partitions:
        return Text("no topics yet")
    rows: list[list[Cell]] = [
        [
            p.name,
            str(p.leader) if p.leader >= 0 else Text("none", "red"),
            Text(",".join(map(str, p.isr)), "" if p.is_replicated else "yellow"),
            str(p.lag_max),
            f"{rates.records.get(p.name, 0):,.0f}",
            f"{p.log_start_offset:,}",
            f"{p.high_watermark:,}",
            Text(p.offline_reason, "red") if p.offline_reason else bar(p),
        ]
        for p in partitions
    ]
    return fitting_table("partitions", PARTITION_COLUMNS, rows, width)


def _blocked_table(view: StatusView, width: int) -> list[Table]:
    """The table of partitions whose readers have waited for a while, if there are any."""
    rows: list[list[Cell]] = [
        [
            f"{b.topic}-{b.partition}",
            b.transactional_id or Text("no coordinator knows it", "yellow"),
            b.state or "-",
            duration(b.age_ms),
            time_left(b.times_out_in_ms),
            f"{b.high_watermark - b.last_stable_offset:,}",
            "-" if b.producer_id is None else f"{b.producer_id}, {b.producer_epoch}",
            b.client_host or "-",
        ]
        for b in view.blocked
        if b.age_ms >= SHOWN_AFTER_MS
    ]
    return [fitting_table("blocked readers", BLOCKED_COLUMNS, rows, width)] if rows else []


def _group_table(view: StatusView, width: int) -> list[Table | Text]:
    """The table of consumer groups, if there are any."""
    if not view.groups:
        return []
    rows: list[list[Cell]] = [
        [
            g.group_id,
            g.state,
            str(g.members),
            *((g.topic, str(g.partitions), f"{g.lag:,}") if g.topic else ("-", "-", "-")),
        ]
        for g in view.groups
    ]
    shown = fitting_table("consumer groups", GROUP_COLUMNS, rows, width)
    if not view.groups_left_out:
        return [shown]
    return [shown, Text(f"and {view.groups_left_out} more groups", "dim")]


def bar(partition: PartitionRow) -> Text:
    """The share of a partition's offsets that is in Delta; the rest is on brokers only."""
    if partition.log_end_offset <= partition.log_start_offset:
        return Text("·" * BAR_CELLS, "dim")
    in_delta = round(BAR_CELLS * partition.delta_share)
    shown = Text("█" * in_delta, "blue")
    shown.append("█" * (BAR_CELLS - in_delta), "dark_orange")
    return shown.append(f" {partition.delta_share:.0%}")


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
