"""`headwater audit TOPIC...`: was each record of each minute consumed, tiered, mirrored?"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any

import click

from headwater.cli.command_config import client_security
from headwater.cli.console_tables import console, table
from headwater.cli.options import (
    bootstrap_options,
    bootstrap_servers,
    echo_json,
    json_option,
    within,
)
from headwater.client.admin.client import Admin
from headwater.client.consumer import Consumer
from headwater.client.producer import Producer
from headwater.client.security_options import security_keywords
from headwater.config.java_properties import read_java_properties
from headwater.errors import EXIT_FAILED, UsageError
from headwater.security.client_keys import security_properties
from headwater.system import SystemClock
from headwater.wire.primitives import INT32_MAX
from headwater_tier.audit.minutes import MinuteRow
from headwater_tier.audit.passes import TopicAudit
from headwater_tier.audit.places import LogPlace, Place, TablePlace
from headwater_tier.audit.report_topic import (
    REPORT_TOPIC,
    ReportTopic,
    create_report_topic,
    document,
)
from headwater_tier.cli.storage_options import HELP, storage_options
from headwater_tier.table_location import locate

CLIENT_ID = "headwater-audit"
GRACE_S = 300
SHOWN_MAX = 60


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...")
@click.option("--group", "groups", multiple=True, metavar="GROUP",
              help="Compare with what this group has committed. Repeatable.")  # fmt: skip
@click.option("--table", "has_table", is_flag=True, help="Compare with the topic's Delta table.")
@click.option("--mirror", metavar="HOST:PORT,...", help="Compare with the topic of that cluster.")
@click.option("--mirror-config", metavar="FILE", help="Client properties for --mirror.")
@click.option("--grace", type=int, default=GRACE_S, show_default=True, metavar="S",
              callback=within(0, INT32_MAX),
              help="Judge a minute once records are so far past it.")  # fmt: skip
@click.option("--every", type=int, metavar="S", callback=within(1, INT32_MAX),
              help="Look again and again, until SIGTERM or Ctrl-C.")  # fmt: skip
@click.option("--to", "report_topic", metavar="[TOPIC]", is_flag=False, flag_value=REPORT_TOPIC,
              help=f"Write the minutes to this compacted topic. [{REPORT_TOPIC}]")  # fmt: skip
@click.option("--tables-uri", metavar="URI", help="Base folder of tables when no config has one.")
@click.option("--storage-option", "storage", multiple=True, metavar="KEY=VALUE",
              help=HELP)  # fmt: skip
@bootstrap_options
@json_option
def audit(
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    has_table: bool,
    mirror: str | None,
    mirror_config: str | None,
    grace: int,
    every: int | None,
    report_topic: str | None,
    tables_uri: str | None,
    storage: tuple[str, ...],
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Count the records of each minute of TOPIC, and how many of them are where they should be.

    Exit code 1 when a minute that is over differs. Records are committed ones, by their timestamp.
    """
    if not (groups or has_table or mirror):
        raise UsageError("compare with what? Give --group, --table or --mirror")
    servers = bootstrap_servers(bootstrap_server, directory)
    with ExitStack() as stack:
        own = _Cluster(stack, servers, client_security())
        other = _Cluster(stack, mirror, _mirror_security(mirror_config)) if mirror else None
        audits = []
        own.tell_unknown(groups)
        for topic in dict.fromkeys(topics):
            places: dict[str, Place] = {f"group {g}": own.place(topic, g) for g in groups}
            if has_table:
                options = storage_options(storage)
                found = locate(own.admin, topic, tables_uri=tables_uri, storage_options=options)
                places["table"] = TablePlace(found)
            if other is not None:
                places[f"mirror {mirror}"] = other.place(topic, has_own_offsets=True)
            log = own.place(topic)
            audits.append(TopicAudit(topic, log, places, grace * 1000, SystemClock()))
        report = _report(stack, own, report_topic) if report_topic else None
        return _run(audits, report, every, as_json=as_json)


class _Cluster:
    """An Admin and a Consumer of one cluster."""

    def __init__(self, stack: ExitStack, servers: str, security: Mapping[str, Any]) -> None:
        self.servers, self.security = servers, security
        self.admin = stack.enter_context(Admin(servers, client_id=CLIENT_ID, **security))
        self._consumer = stack.enter_context(
            Consumer(
                bootstrap_servers=servers,
                client_id=CLIENT_ID,
                isolation_level="read_committed",
                auto_offset_reset="earliest",
                **security,
            )
        )

    def tell_unknown(self, groups: Iterable[str]) -> None:
        """A name that was mistyped looks like a group that has read nothing: say which have."""
        for group in dict.fromkeys(groups):
            if not self.admin.list_group_offsets(group):
                remedy = "see `headwater groups list`"
                click.echo(f"headwater: group {group} has committed no offsets: {remedy}", err=True)

    def place(self, topic: str, group: str = "", *, has_own_offsets: bool = False) -> LogPlace:
        """A topic of it."""
        return LogPlace(
            self.admin,
            self._consumer,
            topic,
            SystemClock(),
            group,
            has_own_offsets=has_own_offsets,
        )


def _mirror_security(path: str | None) -> Mapping[str, Any]:
    if path is None:
        return {}
    return security_keywords(security_properties(read_java_properties(path, "--mirror-config")))


def _report(stack: ExitStack, own: _Cluster, name: str) -> ReportTopic:
    create_report_topic(own.admin, name)
    producer = Producer(own.servers, client_id=CLIENT_ID, **own.security)
    return ReportTopic(stack.enter_context(producer), name)


def _run(
    audits: Iterable[TopicAudit], report: ReportTopic | None, every: int | None, *, as_json: bool
) -> int:
    ended = threading.Event()
    if every is not None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
    while True:
        rows = [row for one in audits for row in one.look()]
        if report is not None:
            report.write(rows)
        differing = [row for row in rows if row.differing]
        if every is None:
            _show(rows, as_json=as_json)
            return EXIT_FAILED if differing else 0
        click.echo(_line(rows, differing))
        if ended.wait(every):
            return EXIT_FAILED if differing else 0


def _line(rows: list[MinuteRow], differing: list[MinuteRow]) -> str:
    closed, records = sum(row.is_closed for row in rows), sum(row.produced for row in rows)
    worst = ""
    if differing:
        first = document(differing[0])
        worst = f"; the first: {first['topic']} {first['minute']} {first['differing']}"
    return f"{records:,} records, {closed:,} minutes over, {len(differing):,} differ{worst}"


def _show(rows: list[MinuteRow], *, as_json: bool) -> None:
    if as_json:
        echo_json([document(row) for row in rows])
        return
    names = list(rows[0].counts) if rows else []
    shown = table("Records per minute", ", ".join(["topic", "minute", ">produced",
                  *(f">{name}" for name in names), "state"]))  # fmt: skip
    for row in rows[-SHOWN_MAX:]:
        state = "differs" if row.differing else "equal" if row.is_closed else "open"
        minute = document(row)["minute"]
        counts = [f"{row.counts[name]:,}" for name in names]
        shown.add_row(row.topic, minute, f"{row.produced:,}", *counts, state)
    console().print(shown)
    if len(rows) > SHOWN_MAX:
        click.echo(f"the last {SHOWN_MAX} of {len(rows):,} minutes; --json prints all")
    click.echo(_line(rows, [row for row in rows if row.differing]))
