"""`headwater cluster`: add brokers to a running cluster, or restart one of them."""

from __future__ import annotations

from pathlib import Path

import click

from headwater.cli.options import dir_option, echo_json, json_option, up_command
from headwater.errors import UsageError
from headwater.local import cluster_file
from headwater.local.cluster_spec import BROKERS_MAX
from headwater.local.daemon import ADD_BROKERS, RESTART_BROKER, cluster_folder
from headwater.local.supervisor_socket import ask


@click.group()
def cluster() -> None:
    """Add brokers to a running cluster, or restart one of them."""


@cluster.command("add")
@click.argument("count", type=click.IntRange(1, BROKERS_MAX), default=1)
@dir_option
@json_option
def add(count: int, directory: str, as_json: bool) -> int:
    """Add COUNT brokers to a running cluster. COUNT is 1 by default.

    A new broker has no replicas: move partitions to it with `headwater reassign`, or create topics.
    """
    folder = _running(directory)
    added = _change(folder, ADD_BROKERS, count=count)
    if as_json:
        _echo_brokers(added, folder)
        return 0
    for broker_id, address in added.items():
        click.echo(f"broker {broker_id} is ready at {address}")
    ids = ",".join(map(str, range(max(map(int, added)) + 1)))
    click.echo(f"move partitions to it: headwater reassign generate --topic TOPIC --brokers {ids}")
    return 0


@cluster.command("restart-broker")
@click.argument("broker_id", type=click.IntRange(0, BROKERS_MAX - 1), metavar="ID")
@dir_option
@json_option
def restart_broker(broker_id: int, directory: str, as_json: bool) -> int:
    """Restart a broker of a running cluster.

    Other replicas become leaders first; the broker then stops and starts again.
    """
    folder = _running(directory)
    restarted = _change(folder, RESTART_BROKER, broker_id=broker_id)
    if as_json:
        _echo_brokers(restarted, folder)
    else:
        click.echo(f"broker {broker_id} is ready at {restarted[str(broker_id)]}")
    return 0


def _running(directory: str) -> Path:
    """The folder of a cluster that local processes run. Raises UsageError."""
    folder = cluster_folder(directory)
    found = cluster_file.load(folder)
    if found is None:
        raise UsageError(f"{directory} holds no cluster: start one with {up_command(directory)}")
    if not found.running:
        raise UsageError(
            f"the cluster of {directory} is down: start it with {up_command(directory)}"
        )
    if found.kind != "local":
        raise UsageError(
            f"the brokers of {directory} run as Spark jobs, which this command does not change: "
            "stop the cluster, then start it with more --brokers"
        )
    return folder


def _change(folder: Path, command: str, **arguments: int) -> dict[str, str]:
    """Ask the supervisor for a change; the addresses of the changed brokers by id."""
    changed: dict[str, str] = {}
    for event in ask(folder, command, **arguments):
        if event["event"] == "done":
            changed = event["brokers"]
    return changed


def _echo_brokers(brokers: dict[str, str], folder: Path) -> None:
    rows = [{"broker_id": int(broker), "address": address} for broker, address in brokers.items()]
    found = cluster_file.load(folder)
    servers = "" if found is None else found.bootstrap_servers
    echo_json({"brokers": rows, "bootstrap_servers": servers})
