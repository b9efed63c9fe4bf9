"""`headwater cluster`: add, restart, drain and remove brokers of a running cluster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import Any

import click

from headwater.cli.cluster_progress import shown_progress
from headwater.cli.command_config import client_security, command_config_option
from headwater.cli.options import dir_option, echo_json, json_option, up_command, within
from headwater.client.admin.client import Admin
from headwater.errors import UsageError
from headwater.local import cluster_file
from headwater.local.change_requests import LOG_BYTES_MAX
from headwater.local.cluster_spec import BROKERS_MAX
from headwater.local.daemon import cluster_folder
from headwater.local.manager import Progress
from headwater.local.supervisor_socket import SocketManagerClient
from headwater.local.zk_properties import zookeeper_security
from headwater.local.zk_requests import ZkManagerClient
from headwater.operations.broker_operations import BrokerOperations, ManagerClient, OpenAdmin
from headwater.operations.pacing import Pacing

LOG_BYTES_DEFAULT = 16 * 1024
TIMEOUT_DEFAULT_S = 600

Connect = Callable[[str, str | None, str | None], ManagerClient]
"""Finds the manager of a `--dir` or a `--zookeeper`, with the file of `--zookeeper-config`."""


@click.group()
def cluster() -> None:
    """Add, restart, drain and remove brokers of a running cluster.

    The cluster is that of --dir, whether `headwater up` or a Spark driver on this host runs its
    brokers. --zookeeper reaches the Spark driver of a cluster from any host. A command that was
    interrupted continues when it is run again.
    """


class Operations:
    """What a command gets: the operations of its cluster, with its progress and time limit."""

    def __init__(
        self, manager: ManagerClient, admin: OpenAdmin, pacing: Pacing, *, quiet: bool
    ) -> None:
        self._manager = manager
        self._admin = admin
        self._pacing = pacing
        self._quiet = quiet

    def run(self, work: Callable[[BrokerOperations], Any]) -> Any:
        """Run an operation; show its progress on a terminal."""
        with shown_progress(quiet=self._quiet) as progress:
            return work(self._operations(progress))

    def _operations(self, progress: Progress) -> BrokerOperations:
        return BrokerOperations(self._manager, self._admin, progress=progress, pacing=self._pacing)


def connect(directory: str, zookeeper: str | None, zookeeper_config: str | None) -> ManagerClient:
    """The manager of a running cluster. Raises UsageError."""
    if zookeeper is not None:
        return ZkManagerClient(zookeeper, security=zookeeper_security(zookeeper_config))
    if zookeeper_config is not None:
        raise UsageError("--zookeeper-config goes with --zookeeper: the folder of --dir needs none")
    folder = cluster_folder(directory)
    found = cluster_file.load(folder)
    if found is None:
        raise UsageError(
            f"{directory} holds no cluster: start one with {up_command(directory)}, or name the"
            " ZooKeeper of a cluster that a Spark driver manages (--zookeeper)"
        )
    if not found.running:
        raise UsageError(
            f"the cluster of {directory} is down: start it with {up_command(directory)}"
        )
    return SocketManagerClient(folder)


@dataclass(frozen=True, slots=True)
class Connections:
    """How the commands reach a cluster and wait for it; tests pass others as click's object."""

    manager: Connect = connect
    admin: OpenAdmin | None = None
    """None: an Admin with the security properties of the command."""
    pacing: Pacing = field(default_factory=Pacing)


def operation(function: Callable[..., int]) -> Callable[..., int]:
    """The options that all commands have; the command gets `Operations` and `as_json`."""

    @wraps(function)
    def command(
        directory: str,
        zookeeper: str | None,
        zookeeper_config: str | None,
        servers: str | None,
        timeout_s: int,
        as_json: bool,
        **more: Any,
    ) -> int:
        outside: Connections = click.get_current_context().obj or Connections()
        pacing = replace(outside.pacing, in_sync_s=timeout_s, stall_s=timeout_s)
        manager = outside.manager(directory, zookeeper, zookeeper_config)
        open_admin = outside.admin or partial(Admin, **client_security())
        admin = open_admin if servers is None else lambda _usual: open_admin(servers)
        operations = Operations(manager, admin, pacing, quiet=as_json)
        return function(operations, as_json=as_json, **more)

    limit = click.option(
        "--timeout", "timeout_s", type=int, default=TIMEOUT_DEFAULT_S, show_default=True,
        callback=within(1, 1_000_000), metavar="S",
        help="How long a broker may take to catch up, and moves may go on while none completes.",
    )  # fmt: skip
    zookeeper = click.option(
        "--zookeeper", metavar="HOST:PORT,.../chroot",
        help="ZooKeeper of a cluster whose Spark driver may be on another host.",
    )  # fmt: skip
    config = click.option(
        "--zookeeper-config", metavar="FILE",
        help="With --zookeeper: the D/security/secrets.properties of a secure cluster; the "
        "brokers' zookeeper.ssl.* keys where ZooKeeper is reached by TLS.",
    )  # fmt: skip
    elsewhere = click.option(
        "--bootstrap-server", "servers", metavar="HOST:PORT,...",
        help="Brokers to ask, where --command-config is for another listener than the cluster's.",
    )  # fmt: skip
    reached = elsewhere(command_config_option(zookeeper(config(limit(json_option(command))))))
    return dir_option(reached)


python_option = click.option(
    "--python", default="", metavar="PATH",
    help="From now on run the broker with this Python interpreter: an upgrade.",
)  # fmt: skip
broker_argument = click.argument("broker_id", type=click.IntRange(0, BROKERS_MAX - 1), metavar="ID")
brokers_argument = click.argument(
    "broker_ids", type=click.IntRange(0, BROKERS_MAX - 1), metavar="ID...", nargs=-1, required=True
)


@cluster.command("list")
@operation
def list_brokers(operations: Operations, as_json: bool) -> int:
    """List the brokers: address, process, host and restarts."""
    found = operations.run(lambda o: o.status())
    if as_json:
        echo_json(found)
        return 0
    for row in found["brokers"]:
        state = "ready" if row["ready"] else "down"
        where = "" if row["executor_id"] is None else f", executor {row['executor_id']}"
        click.echo(
            f"broker {row['broker_id']}  {row['address']}  {state}  pid {row['pid'] or '-'}"
            f"  host {row['host'] or '-'}{where}  restarts {row['restarts']}"
        )
    return 0


@cluster.command("add")
@click.argument("count", type=click.IntRange(1, BROKERS_MAX), default=1)
@operation
def add(operations: Operations, count: int, as_json: bool) -> int:
    """Add COUNT brokers to a running cluster. COUNT is 1 by default.

    A new broker gets the lowest free id. It has no replicas: `headwater cluster rebalance` moves
    some to it, and new topics use it.
    """
    added = operations.run(lambda o: o.add(count))
    if as_json:
        _echo_brokers(operations, added)
        return 0
    for broker_id, address in added.items():
        click.echo(f"broker {broker_id} is ready at {address}")
    click.echo("move partitions to it: headwater cluster rebalance")
    return 0


@cluster.command("rebalance")
@operation
def rebalance(operations: Operations, as_json: bool) -> int:
    """Move replicas until no broker has two more than another. It moves as few as it can."""
    moved = operations.run(lambda o: o.rebalance())
    if as_json:
        echo_json({"partitions_moved": moved})
    else:
        click.echo(f"{moved} partitions moved")
    return 0


@cluster.command("restart-broker")
@broker_argument
@python_option
@operation
def restart_broker(operations: Operations, broker_id: int, python: str, as_json: bool) -> int:
    """Restart a broker of a running cluster and wait until it is in sync again.

    Other replicas become leaders first; the broker then stops and starts again.
    """
    address = operations.run(lambda o: o.restart(broker_id, python))
    if as_json:
        _echo_brokers(operations, {broker_id: address})
    else:
        click.echo(f"broker {broker_id} is ready at {address}")
    return 0


@cluster.command("rolling-restart")
@python_option
@operation
def rolling_restart(operations: Operations, python: str, as_json: bool) -> int:
    """Restart all brokers, one after the other, the controller last.

    Every partition must have all replicas in sync before the first restart and after each one.
    With --python it is a rolling upgrade: brokers that this interpreter runs already are left
    alone, so that an interrupted upgrade continues.
    """
    restarted = operations.run(lambda o: o.rolling_restart(python))
    if as_json:
        echo_json({"restarted": restarted})
    else:
        names = ", ".join(map(str, restarted))
        click.echo(f"restarted: {names}" if restarted else "every broker runs it already")
    return 0


@cluster.command("drain")
@brokers_argument
@operation
def drain(operations: Operations, broker_ids: tuple[int, ...], as_json: bool) -> int:
    """Move every replica off brokers to the other ones. The brokers go on running.

    It is refused when fewer brokers would be left than a topic has replicas.
    """
    moved = operations.run(lambda o: o.drain(broker_ids))
    if as_json:
        echo_json({"partitions_moved": moved})
    else:
        click.echo(f"{moved} partitions moved; no replica is left on the brokers")
    return 0


@cluster.command("remove")
@brokers_argument
@operation
def remove(operations: Operations, broker_ids: tuple[int, ...], as_json: bool) -> int:
    """Drain brokers, stop them and take them out of the cluster. Their data folders stay, empty.

    It is refused when fewer brokers would be left than a topic has replicas.
    """
    folders = operations.run(lambda o: o.remove(broker_ids))
    if as_json:
        echo_json({"removed": sorted(set(broker_ids)), "folders": folders})
        return 0
    click.echo(f"removed: {', '.join(map(str, sorted(set(broker_ids))))}")
    click.echo(f"without replicas, may be deleted: {', '.join(folders)}")
    return 0


@cluster.command("logs")
@broker_argument
@click.option("--bytes", "size", type=int, callback=within(1, LOG_BYTES_MAX),
              default=LOG_BYTES_DEFAULT, show_default=True, metavar="N",
              help="Length of the part shown.")  # fmt: skip
@operation
def logs(operations: Operations, broker_id: int, size: int, as_json: bool) -> int:
    """Show the end of a broker's log, also of a broker on another host."""
    text = operations.run(lambda o: o.log_tail(broker_id, size))
    if as_json:
        echo_json({"broker_id": broker_id, "text": text})
    else:
        click.echo(text, nl=not text.endswith("\n"))
    return 0


def _echo_brokers(operations: Operations, brokers: dict[int, str]) -> None:
    rows = [{"broker_id": broker_id, "address": where} for broker_id, where in brokers.items()]
    servers = operations.run(lambda o: o.status())["bootstrap_servers"]
    echo_json({"brokers": rows, "bootstrap_servers": servers})
