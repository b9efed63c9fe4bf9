"""`headwater status`: brokers, partitions, lag, rates, and how much of each log is in Delta."""

from __future__ import annotations

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headwater.cli.console_tables import console, table
from headwater.cli.options import dir_option, echo_json, json_option, up_command
from headwater.cli.status_view import (
    Answer,
    BrokerEvent,
    BrokerRow,
    PartitionRow,
    Rates,
    StatusView,
    as_document,
    build_view,
    check_format,
    rates,
)
from headwater.client.control import ControlClient
from headwater.errors import HeadwaterError, UsageError
from headwater.local import cluster_file
from headwater.local.cluster_file import ClusterFile
from headwater.ports.control import ControlUnavailableError
from headwater.system import SystemClock

REFRESH_S = 1.0
SAMPLE_S = 0.4
"""Between the two looks that a single `status` takes, so that it can show rates."""
BAR_CELLS = 16
EXIT_UNHEALTHY = 1
EVENTS_SHOWN = 4


@click.command()
@dir_option
@click.option("--watch", is_flag=True, help="Refresh every second until Ctrl-C.")
@click.option("--internal", is_flag=True, help="Internal topics too.")
@json_option
def status(directory: str, watch: bool, internal: bool, as_json: bool) -> int:
    """Show the cluster of a folder. Exit code 1 when something is down or under-replicated."""
    path = Path(directory).expanduser().resolve()
    cluster = cluster_file.load(path)
    if cluster is None:
        raise UsageError(f"{directory} holds no cluster: start one with {up_command(directory)}")
    if not cluster.running:
        return _down(cluster, directory, as_json)
    watcher = _Watcher(path, cluster)
    try:
        return _watch(watcher, internal, as_json) if watch else _once(watcher, internal, as_json)
    finally:
        watcher.close()


def _down(cluster: ClusterFile, directory: str, as_json: bool) -> int:
    if as_json:
        echo_json({"format": 1, "cluster_id": cluster.cluster_id, "running": False})
    else:
        click.echo(f"cluster {cluster.cluster_id} is down: start it with {up_command(directory)}")
    return EXIT_UNHEALTHY


class _Watcher:
    """Asks every broker at once; one that is gone costs its time limit, not the others'."""

    def __init__(self, directory: Path, cluster: ClusterFile) -> None:
        self.cluster = cluster
        self._directory = directory
        self._clock = SystemClock()
        self._clients: dict[str, ControlClient] = {}
        self._pool = ThreadPoolExecutor(16, thread_name_prefix="status")

    def view(self) -> StatusView:
        """The cluster now. Brokers of a managed cluster may move: the file is read again."""
        self.cluster = cluster_file.load(self._directory) or self.cluster
        rows = list(enumerate(self.cluster.control_addresses))
        answers = list(self._pool.map(self._ask, rows))
        return build_view(answers, self.cluster.cluster_id, self._clock.monotonic())

    def close(self) -> None:
        """Close the channels."""
        self._pool.shutdown(wait=True)
        for client in self._clients.values():
            client.close()

    def _ask(self, row: tuple[int, str]) -> Answer:
        broker_id, control_address = row
        addresses = self.cluster.bootstrap_servers.split(",")
        address = addresses[broker_id] if broker_id < len(addresses) else control_address
        client = self._clients.get(control_address)
        if client is None:
            client = self._clients[control_address] = ControlClient(control_address)
        try:
            reply = client.status()
            document = json.loads(reply.document)
        except ControlUnavailableError as error:
            return Answer(broker_id, address, problem=_short(error))
            check_format(document)
        except ValueError as error:
            return Answer(broker_id, address, problem=f"unreadable status document: {error}")
        return Answer(broker_id, address, reply.ready, document)


def _once(watcher: _Watcher, internal: bool, as_json: bool) -> int:
    first = watcher.view()
    time.sleep(SAMPLE_S)
    now = watcher.view()
    moved = rates(first, now)
    if as_json:
        bootstrap = watcher.cluster.bootstrap_servers
        echo_json({"running": True, "bootstrap_servers": bootstrap, **as_document(now, moved)})
    else:
        console().print(render(now, moved, watcher.cluster, internal=internal))
    return 0 if now.healthy else EXIT_UNHEALTHY


def _watch(watcher: _Watcher, internal: bool, as_json: bool) -> int:
    before: StatusView | None = None
    out = console()
    in_place = out.is_terminal and not as_json  # a pipe gets one view below the other
    with Live(console=out, auto_refresh=False, screen=True) if in_place else nullcontext() as live:
        while True:
            now = watcher.view()
            moved = rates(before, now)
            if as_json:
                click.echo(json.dumps(as_document(now, moved)))
            else:
                shown = render(now, moved, watcher.cluster, internal=internal)
                if live is None:
                    out.print(shown)
                    sys.stdout.flush()
                else:
                    live.update(shown, refresh=True)
            before = now
            time.sleep(REFRESH_S)


def render(view: StatusView, moved: Rates, cluster: ClusterFile, *, internal: bool) -> Group:
    """The tables of one view."""
    head = Text(f"cluster {view.cluster_id}\nbootstrap servers {cluster.bootstrap_servers}")
    rows = [p for p in view.partitions if internal or not p.topic.startswith("__")]
    tables = (_broker_table(view.brokers, moved), _partition_table(rows, moved))
    return Group(head, *tables, *_group_table(view), *_last_events(view.events))


def _last_events(events: tuple[BrokerEvent, ...]) -> list[Text]:
    """The last kills and restarts, newest first; nothing when there were none."""
    lines = []
    for event in reversed(events[-EVENTS_SHOWN:]):
        at = datetime.fromtimestamp(event.at_ms / 1000).astimezone().strftime("%H:%M:%S")
        away = f" after {event.away_ms / 1000:.1f} s" if event.away_ms >= 0 else ""
        style = "red" if event.kind == "gone" else "green"
        lines.append(Text(f"{at} broker {event.broker_id} {event.kind}{away}", style))
    return lines


def _broker_table(brokers: tuple[BrokerRow, ...], moved: Rates) -> Table:
    sizes = ">leaders, >replicas, >on disk, >memory, >in/s, >out/s, >longest turn"
    headings = f"broker, address, state, {sizes}"
    shown = table("brokers (* controller)", headings)
    for b in brokers:
        state = Text("ready", "green") if b.ready else Text(b.problem or "starting", "red")
        shown.add_row(
            f"{b.broker_id}{' *' if b.controller else ''}",
            b.address,
            state,
            str(b.leaders),
            str(b.replicas),
            _bytes(b.size_bytes),
            _bytes(b.rss_bytes),
            _bytes(moved.bytes_in.get(b.broker_id, 0)),
            _bytes(moved.bytes_out.get(b.broker_id, 0)),
            f"{b.loop_turn_ms:.1f} ms",
        )
    return shown


def _partition_table(partitions: list[PartitionRow], moved: Rates) -> Table | Text:
    if not partitions:
        return Text("no topics yet")
    headings = "partition, >leader, in sync, >lag, >records/s, >start, >end, Delta | hot"
    shown = table("partitions", headings)
    for p in partitions:
        shown.add_row(
            p.name,
            str(p.leader) if p.leader >= 0 else Text("none", "red"),
            Text(",".join(map(str, p.isr)), "" if p.is_replicated else "yellow"),
            str(p.lag_max),
            f"{moved.records.get(p.name, 0):,.0f}",
            f"{p.log_start_offset:,}",
            f"{p.high_watermark:,}",
            Text(p.offline_reason, "red") if p.offline_reason else bar(p),
        )
    return shown


def _group_table(view: StatusView) -> list[Table | Text]:
    """Nothing while there are no groups."""
    if not view.groups:
        return []
    shown = table("consumer groups", "group, state, >members, topic, >partitions, >lag")
    for g in view.groups:
        read = (g.topic, str(g.partitions), f"{g.lag:,}") if g.topic else ("-", "-", "-")
        shown.add_row(g.group_id, g.state, str(g.members), *read)
    if not view.groups_left_out:
        return [shown]
    return [shown, Text(f"and {view.groups_left_out} groups more", "dim")]


def bar(partition: PartitionRow) -> Text:
    """Which part of the kept offsets Delta holds, and which only the brokers."""
    if partition.log_end_offset <= partition.log_start_offset:
        return Text("·" * BAR_CELLS, "dim")
    cold = round(BAR_CELLS * partition.delta_share)
    shown = Text("█" * cold, "blue")
    shown.append("█" * (BAR_CELLS - cold), "dark_orange")
    return shown.append(f" {partition.delta_share:4.0%} Delta")


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def _short(error: HeadwaterError) -> str:
    text = str(error)
    return "does not answer" if "UNAVAILABLE" in text or "DEADLINE" in text else text
