"""`headwater status`: brokers, partitions, lag, rates, and each log's share in Delta."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import click
from rich.live import Live

from headwater.cli.command_config import client_credentials, command_config_option
from headwater.cli.console_tables import console
from headwater.cli.options import dir_option, echo_json, json_option, up_command
from headwater.cli.status_tables import render
from headwater.cli.status_view import (
    Answer,
    StatusView,
    as_document,
    build_view,
    check_format,
    rates_between,
)
from headwater.client.blocking.broker_status import BrokerStatusClient
from headwater.errors import EXIT_FAILED, KafkaError, UsageError
from headwater.local import cluster_file
from headwater.local.cluster_file import ClusterFile
from headwater.local.daemon import cluster_folder
from headwater.system import SystemClock

REFRESH_S = 1.0
SAMPLE_S = 0.4
"""`status` without `--watch` looks twice, this long apart, to compute rates."""
CALLS_MAX = 16


@click.command()
@dir_option
@command_config_option
@click.option("--watch", "is_watch", is_flag=True, help="Refresh every second until Ctrl-C.")
@click.option("--internal", is_flag=True, help="Show internal topics too.")
@json_option
def status(directory: str, is_watch: bool, internal: bool, as_json: bool) -> int:
    """Show the cluster of a folder. The exit code is 1 when a broker is down, or a partition has no
    leader or is under-replicated."""
    path = cluster_folder(directory)
    cluster = cluster_file.load(path)
    if cluster is None:
        raise UsageError(f"{directory} holds no cluster: start one with {up_command(directory)}")
    if not cluster.running:
        return _down(cluster, directory, as_json)
    credentials = client_credentials()
    watcher = ClusterWatcher(path, cluster, partial(BrokerStatusClient, credentials=credentials))
    try:
        show = watch if is_watch else _once
        return show(watcher, internal=internal, as_json=as_json)
    finally:
        watcher.close()


def _down(cluster: ClusterFile, directory: str, as_json: bool) -> int:
    if as_json:
        echo_json({"format": 1, "cluster_id": cluster.cluster_id, "running": False})
    else:
        click.echo(f"cluster {cluster.cluster_id} is down: start it with {up_command(directory)}")
    return EXIT_FAILED


class ClusterWatcher:
    """Asks all brokers for their status at the same time: one that does not answer delays none."""

    def __init__(
        self,
        directory: Path,
        cluster: ClusterFile,
        connect: Callable[[str], BrokerStatusClient] = BrokerStatusClient,
    ) -> None:
        self.cluster = cluster
        self._directory = directory
        self._connect = connect
        self._clock = SystemClock()
        self._clients: dict[str, BrokerStatusClient] = {}
        self._pool = ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="status")

    def view(self) -> StatusView:
        """The cluster now. It reads cluster.json again: brokers may have been added or moved."""
        self.cluster = cluster_file.load(self._directory) or self.cluster
        rows = list(enumerate(self.cluster.bootstrap_servers.split(",")))
        answers = list(self._pool.map(self._ask, rows))
        return build_view(answers, self.cluster.cluster_id, self._clock.monotonic())

    def close(self) -> None:
        """Close the connections."""
        self._pool.shutdown(wait=True)
        for client in self._clients.values():
            client.close()

    def _ask(self, row: tuple[int, str]) -> Answer:
        broker_id, address = row
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = self._connect(address)
        try:
            reply = client.status()
            document = json.loads(reply.document)
            check_format(document)
        except OSError:
            return Answer(broker_id, address, problem="does not answer")
        except KafkaError as error:
            return Answer(broker_id, address, problem=str(error))
        except ValueError as error:
            return Answer(broker_id, address, problem=f"unreadable status document: {error}")
        return Answer(broker_id, address, reply.ready, document)


def _once(watcher: ClusterWatcher, *, internal: bool, as_json: bool) -> int:
    first = watcher.view()
    time.sleep(SAMPLE_S)
    now = watcher.view()
    rates = rates_between(first, now)
    if as_json:
        bootstrap = watcher.cluster.bootstrap_servers
        echo_json({"running": True, "bootstrap_servers": bootstrap, **as_document(now, rates)})
    else:
        out = console()
        out.print(render(now, rates, watcher.cluster, internal=internal, width=out.width))
    return 0 if now.healthy else EXIT_FAILED


def watch(
    watcher: ClusterWatcher,
    *,
    internal: bool,
    as_json: bool,
    pause: Callable[[float], None] = time.sleep,
) -> int:
    """Show view after view; ends by KeyboardInterrupt only."""
    before: StatusView | None = None
    out = console()
    in_place = out.is_terminal and not as_json  # a pipe gets one view below the other
    with Live(console=out, auto_refresh=False, screen=True) if in_place else nullcontext() as live:
        while True:
            now = watcher.view()
            rates = rates_between(before, now)
            if as_json:
                click.echo(json.dumps(as_document(now, rates)))
            else:
                shown = render(now, rates, watcher.cluster, internal=internal, width=out.width)
                if live is None:
                    out.print(shown)
                    sys.stdout.flush()
                else:
                    live.update(shown, refresh=True)
            before = now
            pause(REFRESH_S)
