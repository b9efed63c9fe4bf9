"""`headwater up`: start a cluster and return when every broker is ready."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import deque
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headwater.cli.options import command_for, dir_option, echo_json, json_option, within
from headwater.cli.settings import parse_settings
from headwater.config.keys import broker_key
from headwater.errors import HeadwaterError, UsageError
from headwater.local import cluster_file, daemon
from headwater.local.cluster_file import data_roots
from headwater.local.daemon import UpOptions
from headwater.local.data_folders import LOG_DIRS, parse_log_dirs
from headwater.local.failed_start import undone_if_it_fails
from headwater.local.processes import CLUSTER_DIR_VARIABLE
from headwater.local.service_spec import GATEWAY_PORT, REGISTRY_PORT
from headwater.local.supervisor_socket import raise_failure

STOP_WAIT_S = 60.0
PORT_HIGHEST = 65_535
SET_HELP = (
    "A property of every broker, kept for later starts; KEY= removes it. With log.dirs=A,B every "
    "broker N has the data folders A/broker-N and B/broker-N. May be repeated."
)
SECURE_HELP = (
    "TLS on every connection, users with passwords, ACLs; kept for later starts. The admin's login "
    "is D/security/client.properties."
)
OF_SLOT = frozenset(
    {
        "broker.id",
        "cluster.id",
        "log.dir",
        "listeners",
        "advertised.listeners",
        "listener.security.protocol.map",
        "inter.broker.listener.name",
        "control.listener",
        "control.advertised.listener",
        "status.listener",
        "zookeeper.connect",
    }
)
"""Properties that differ between brokers: `up` sets them."""
TABLE_OPTION = "headwater.tables.option."


@click.command()
@click.option("--brokers", type=int, metavar="N", help="Number of brokers. [default: 3]")
@dir_option
@click.option("--port", type=int, metavar="P", help="Port of the first broker. [default: 9092]")
@click.option("--foreground", is_flag=True, help="Run until Ctrl-C, which stops the cluster.")
@click.option("--spark", metavar="MASTER", help="Run the brokers as Spark jobs on this master.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=SET_HELP)
@click.option("--zookeeper", metavar="HOST:PORT,.../chroot", help="Use this external ensemble.")
@click.option("--secure", is_flag=True, help=SECURE_HELP)
@click.option(
    "--tiering/--no-tiering",
    default=None,
    help="Tier topics with remote.storage.enable=true (`headwater tier serve`), at low priority; "
    "kept for later starts. [default: --tiering]",
)
@click.option(
    "--schema-registry",
    "registry_port",
    type=int,
    is_flag=False,
    flag_value=REGISTRY_PORT,
    callback=within(1, PORT_HIGHEST),
    metavar="[PORT]",
    help=f"Run `headwater registry serve` too, at later starts as well. [port: {REGISTRY_PORT}]",
)
@click.option("--no-schema-registry", is_flag=True, help="No longer run it.")
@click.option(
    "--gateway",
    "gateway_port",
    type=int,
    is_flag=False,
    flag_value=GATEWAY_PORT,
    callback=within(1, PORT_HIGHEST),
    metavar="[PORT]",
    help="Run `headwater gateway`, REST and console, too, at later starts as well. "
    f"[port: {GATEWAY_PORT}]",
)
@click.option("--no-gateway", is_flag=True, help="No longer run it.")
@json_option
def up(
    brokers: int | None,
    directory: str,
    port: int | None,
    foreground: bool,
    spark: str | None,
    settings: tuple[str, ...],
    zookeeper: str | None,
    secure: bool,
    tiering: bool | None,
    registry_port: int | None,
    no_schema_registry: bool,
    gateway_port: int | None,
    no_gateway: bool,
    as_json: bool,
) -> int:
    """Start the cluster of a folder.

    It returns when every broker is ready. Data and settings of an earlier start are used again.
    Broker N listens on port P+N, its control plane on P+100+N, its status page on P+200+N;
    ZooKeeper listens on P+300. A start that fails leaves the folder as it was.
    """
    if zookeeper is not None:
        check_ensemble(zookeeper)
    properties = check_properties(parse_settings(settings, "--set"))
    registry_port = _port_or_none(registry_port, "schema-registry", is_off=no_schema_registry)
    gateway_port = _port_or_none(gateway_port, "gateway", is_off=no_gateway)
    options = UpOptions(
        *(directory, brokers, port, spark, zookeeper, properties),
        *(secure, tiering, registry_port, gateway_port),
    )
    path = daemon.cluster_folder(directory)
    with undone_if_it_fails(path, data_roots(path, properties)):
        if foreground:
            return _foreground(options, as_json)
        daemon.prepare_directory(directory)
        servers = _start_detached(options, path, quiet=as_json)
    _show_up(servers, options, as_json)
    return 0


def _port_or_none(port: int | None, name: str, *, is_off: bool) -> int | None:
    """The port of a service, 0 for one that no longer runs. Raises UsageError for both."""
    if is_off and port is not None:
        raise UsageError(f"--{name} and --no-{name}: give one of them")
    return 0 if is_off else port


def check_properties(settings: dict[str, str]) -> dict[str, str]:
    """Check the properties of every broker; folders become absolute. Raises UsageError."""
    for key, value in settings.items():
        if key in OF_SLOT:
            remedy = "write log.dirs" if key == "log.dir" else "it follows from the other options"
            raise UsageError(f"--set {key}: every broker has its own: {remedy}")
        if key == LOG_DIRS and value:
            settings = {**settings, key: ",".join(map(str, parse_log_dirs(value)))}
        elif not key.startswith(TABLE_OPTION) and value:
            broker_key(key).parse(value)
    return settings


def check_ensemble(text: str) -> None:
    """Raise UsageError unless `text` is `host:port,host:port/chroot`."""
    servers, slash, chroot = text.partition("/")
    ports = [server.rpartition(":") for server in servers.split(",")]
    is_bad = any(not host or not port.isdigit() for host, _, port in ports)
    if is_bad or (slash and (not chroot or chroot.endswith("/"))):
        raise UsageError(f"--zookeeper {text!r}: write HOST:PORT,HOST:PORT/chroot")


def _start_detached(options: UpOptions, directory: Path, *, quiet: bool) -> str:
    """Start the daemon and wait until the cluster is up: its bootstrap servers. Raises if not."""
    log_path = directory / "logs" / "supervisor.log"
    with open(log_path, "ab") as log:
        process = subprocess.Popen(
            daemon.command(options),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            env={**os.environ, CLUSTER_DIR_VARIABLE: str(directory)},
        )
    assert process.stdin is not None
    try:
        daemon.send_options(options, process.stdin)
        return _follow(process, log_path, quiet=quiet)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_WAIT_S)
        raise


def _follow(process: subprocess.Popen[bytes], log_path: Path, *, quiet: bool) -> str:
    assert process.stdout is not None
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    hidden = quiet or not console.is_terminal
    shown = Progress(*columns, TimeElapsedColumn(), console=console, disable=hidden, transient=True)
    with shown:
        task = shown.add_task("starting ZooKeeper", total=None)
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "progress":
                shown.update(
                    task, description=event["text"], completed=event["done"], total=event["total"]
                )
            elif event["event"] == "failed":
                process.wait(STOP_WAIT_S)
                raise_failure(event)
            elif event["event"] == "up":
                return str(event["bootstrap_servers"])
    last = deque(log_path.read_text(errors="replace").splitlines(), maxlen=1)
    words = last[0] if last else "it wrote nothing"
    raise HeadwaterError(f"the supervisor ended: {words} (log: {log_path})")


def _foreground(options: UpOptions, as_json: bool) -> int:
    daemon.prepare_directory(options.directory)
    is_up = False

    def report(event: dict[str, Any]) -> None:
        nonlocal is_up
        if event["event"] == "up":
            is_up = True
            _show_up(event["bootstrap_servers"], options, as_json)
        elif not as_json:
            click.echo(daemon.event_text(event), err=True)

    code = daemon.run(options, report)
    if not is_up:  # a signal ended the start
        raise KeyboardInterrupt
    return code


def _show_up(bootstrap_servers: str, options: UpOptions, as_json: bool) -> None:
    directory = options.directory
    running = cluster_file.load(daemon.cluster_folder(directory))
    assert running is not None, "the cluster is up"
    services = running.services
    ports = {"schema_registry": services.registry_port, "gateway": services.gateway_port}
    urls = {n: f"http://127.0.0.1:{port}" for n, port in ports.items() if port is not None}
    if as_json:
        folder = str(daemon.cluster_folder(directory))
        echo_json({"bootstrap_servers": bootstrap_servers, "directory": folder, **urls})
        return
    click.echo(f"bootstrap servers: {bootstrap_servers}")
    for name, url in urls.items():
        click.echo(f"{name.replace('_', ' ')}: {url}")
    click.echo(f"data and logs: {directory}   stop it: {command_for('down', directory)}")
