"""`headwater tier status`: every tiered topic, as its service reported it and as brokers see it.

A topic's rows, bytes, error and intervals are its service's report, which it keeps as the metadata
of its committed offset; how far the table is behind is computed from that offset and the log end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import click

from headwater.cli.command_config import client_credentials
from headwater.cli.console_tables import Column, console, fitting_table
from headwater.cli.options import (
    bootstrap_options,
    bootstrap_servers,
    echo_json,
    json_option,
    open_admin,
)
from headwater.client.blocking.record_client import LATEST
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.errors import EXIT_FAILED, ErrorCode, KafkaError, UsageError
from headwater.system import SystemClock
from headwater.wire.tier_status import STATUS_PARTITION, TIER_GROUP
from headwater_tier.service.options import ServiceOptions
from headwater_tier.service.status import TopicStatus, from_metadata
from headwater_tier.service.topic_finder import UNLOCATED, TieredTopic

SILENT_AFTER_MS = 90_000
"""A service reports at least each 30 s: an older report is of none that runs."""
NO_SERVICE = "no service"
OPENING = "opening"
"""A service runs and has not reported this table yet."""
FORMER = (
    "the last report is of {}, the table of a former topic of this name or in a former folder: the "
    "service has not reported the present one yet"
)
TROUBLED = ("failed", "damaged", NO_SERVICE)
COLUMNS = (
    Column("topic"),
    Column("state"),
    Column(">rows", 3),
    Column(">bytes", 4),
    Column(">records behind"),
    Column(">s behind"),
    Column("last commit", 2),
    Column("interval asked", 5),
    Column("achieved", 1),
    Column("error"),
)


@dataclass(frozen=True, slots=True)
class StatusRow:
    """One topic. `behind`: committed offsets that are not in the table; None: not known."""

    topic: str
    state: str
    behind: int | None
    report: TopicStatus | None
    error: str = ""

    def document(self) -> dict[str, Any]:
        """The row for --json: the same keys for each topic, null for what is not known."""
        unknown = dict.fromkeys(field.name for field in fields(TopicStatus))
        report = unknown if self.report is None else asdict(self.report)
        own = {"topic": self.topic, "state": self.state, "behind": self.behind, "error": self.error}
        return {**report, **own}


@click.command()
@click.argument("topics", nargs=-1)
@bootstrap_options
@json_option
def status(
    topics: tuple[str, ...], bootstrap_server: str | None, directory: str, as_json: bool
) -> int:
    """Show TOPICS, or all topics with remote.storage.enable=true, and their tables.

    The exit code is 1 when a topic's tiering has failed, its table is damaged, or no service runs.
    """
    options = ServiceOptions(bootstrap_servers(bootstrap_server, directory), client_credentials())
    brokers = options.brokers()
    try:
        found = options.finder(brokers).find()
        for name in topics:
            if name not in found:
                raise UsageError(
                    f"topic {name} is not tiered: it does not exist, or lacks "
                    "remote.storage.enable=true"
                )
        shown = {n: t for n, t in found.items() if not topics or n in topics}
        partitions = [(n, p) for n, t in shown.items() for p in range(t.topic.partitions)]
        ends = brokers.list_offsets(dict.fromkeys(partitions, LATEST), "read_committed")
    finally:
        brokers.close()
    with open_admin(bootstrap_server, directory) as admin:
        try:
            offsets = admin.list_group_offsets(TIER_GROUP)
        except KafkaError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            offsets = {}
        is_served = bool(admin.describe_groups([TIER_GROUP])[TIER_GROUP].members)
    rows = status_rows(shown, ends, offsets, SystemClock().now_ms(), is_served=is_served)
    if as_json:
        documents = [row.document() for row in rows]
        echo_json({"group": TIER_GROUP, "achieved_ms": achieved(rows), "topics": documents})
    else:
        _print(rows, SystemClock().now_ms())
    return EXIT_FAILED if any(row.state in TROUBLED for row in rows) else 0


def status_rows(
    topics: Mapping[str, TieredTopic],
    ends: Mapping[tuple[str, int], int],
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    now_ms: int,
    *,
    is_served: bool,
) -> list[StatusRow]:
    """The rows of these topics, by name. `ends` are the last stable offsets.
    `is_served`: a service is a member of the group. Pure."""
    rows = []
    for name, topic in sorted(topics.items()):
        at = offsets.get(TopicPartition(name, STATUS_PARTITION))
        report = None if at is None else from_metadata(at.metadata or "")
        behind = 0
        for p in range(topic.topic.partitions):
            tiered = offsets.get(TopicPartition(name, p))
            behind += max(0, ends[name, p] - (0 if tiered is None else tiered.offset))
        if report is None:
            state = OPENING if is_served else NO_SERVICE
        else:
            is_silent = now_ms - report.reported_ms > SILENT_AFTER_MS
            state = NO_SERVICE if is_silent else report.state
        error = "" if report is None else report.error or report.maintenance_error
        if topic.location is None:
            state, error = "failed", UNLOCATED
        elif report is not None and report.table != topic.location.uri:
            state = state if state == NO_SERVICE else OPENING
            error, report = FORMER.format(report.table), None
        if report is not None:
            report = _as_of_now(report, behind)
        rows.append(StatusRow(name, state, None if at is None else behind, report, error))
    return rows


def achieved(rows: Sequence[StatusRow]) -> dict[str, int] | None:
    """The achieved intervals of all topics in milliseconds: the median (`p50`), `p95` and `max`;
    None without any. Pure."""
    found = sorted(
        row.report.achieved_ms
        for row in rows
        if row.report is not None and row.report.achieved_ms is not None
    )
    if not found:
        return None
    last = len(found) - 1
    return {"p50": found[last // 2], "p95": found[-(-last * 95 // 100)], "max": found[last]}


def _as_of_now(report: TopicStatus, behind: int) -> TopicStatus:
    """The report, with what came since then as behind in the derived tables, too."""
    since = max(0, behind - report.behind)
    derived = {
        kind: one if one.behind is None else replace(one, behind=one.behind + since)
        for kind, one in report.derived.items()
    }
    return replace(report, derived=derived)


def _print(rows: list[StatusRow], now_ms: int) -> None:
    if not rows:
        click.echo("no topic has remote.storage.enable=true")
        return
    out = console()
    lines = [_cells(row, now_ms) for row in rows]
    out.print(fitting_table(f"tiering (group {TIER_GROUP})", COLUMNS, lines, out.width))
    intervals = achieved(rows)
    if intervals is not None and len(rows) > 1:
        texts = {name: f"{ms / 1000:.1f} s" for name, ms in intervals.items()}
        out.print(
            f"achieved interval of {len(rows):,} topics: median {texts['p50']}, 95 of 100 within "
            f"{texts['p95']}, longest {texts['max']}"
        )
    for row in rows:
        if row.report is not None:
            for kind, derived in row.report.derived.items():
                problem = f": {derived.error}" if derived.error else ""
                held, behind = _number(derived.rows), _number(derived.behind)
                out.print(f"{row.topic}_{kind}: {held} rows, {behind} behind{problem}")


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"


def _cells(row: StatusRow, now_ms: int) -> tuple[str, ...]:
    report = row.report
    behind = "" if row.behind is None else f"{row.behind:,}"
    if report is None:
        return (row.topic, row.state, "", "", behind, "", "", "", "", row.error)
    committed = "" if report.committed_ms is None else f"{_age(now_ms - report.committed_ms)} ago"
    achieved = "" if report.achieved_ms is None else f"{report.achieved_ms / 1000:.1f} s"
    waits = f"{report.behind_ms / 1000:.1f}" if row.behind else "0"
    return (
        row.topic,
        row.state,
        f"{report.rows:,}",
        f"{report.size_bytes:,}",
        behind,
        waits,
        committed,
        f"{report.asked_ms / 1000:g} s",
        achieved,
        row.error,
    )


def _age(ms: int) -> str:
    seconds = max(0, ms) / 1000
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"
