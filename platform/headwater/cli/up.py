"""`headwater up`: start a cluster; return when it is ready."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections import deque
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from headwater.cli.options import dir_option, echo_json, json_option
from headwater.cli.settings import parse_settings
from headwater.config.keys import broker_key
from headwater.errors import HeadwaterError, UsageError
from headwater.local import daemon
from headwater.local.daemon import UpOptions
from headwater.local.processes import CLUSTER_DIR_VARIABLE

STOP_WAIT_S = 60.0
SET_HELP = "A setting of every broker, kept for later starts; KEY= forgets it. Repeatable."
OF_SLOT = frozenset(
    {
        "broker.id",
        "cluster.id",
        "log.dir",
        "log.dirs",
        "listeners",
        "advertised.listeners",
        "control.listener",
        "control.advertised.listener",
        "status.listener",
        "zookeeper.connect",
    }
)
"""What each broker has of its own."""
TABLE_OPTION = "headwater.tables.option."


@click.command()
@click.option("--brokers", type=int, metavar="N", help="How many brokers. [default: 3]")
@dir_option
@click.option("--port", type=int, metavar="P", help="Port of the first broker. [default: 9092]")
@click.option("--foreground", is_flag=True, help="Stay; Ctrl-C stops the cluster.")
@click.option("--spark", metavar="MASTER", help="Run the brokers as Spark tasks on this master.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help=SET_HELP)
@click.option("--zookeeper", metavar="HOST:PORT,.../chroot", help="An ensemble that others run.")
@json_option
def up(
    brokers: int | None,
    directory: str,
    port: int | None,
    foreground: bool,
    spark: str | None,
    settings: tuple[str, ...],
    zookeeper: str | None,
    as_json: bool,
) -> int:
    """Start a cluster in a folder and return when every broker is ready.

    Data found in the folder is served again, with the settings of the last time. Broker i listens
    on P+i, control on P+100+i, its status page on P+200+i, ZooKeeper on P+300.
    """
    if zookeeper is not None:
        check_ensemble(zookeeper)
    properties = check_properties(parse_settings(settings, "--set"))
    options = UpOptions(directory, brokers, port, spark, zookeeper, properties)
    if foreground:
        return _foreground(options, as_json)
    path = daemon.prepare_directory(directory)
    told = _start_detached(options, path, quiet=as_json)
    _tell(told["bootstrap_servers"], path, as_json)
    return 0


def check_properties(settings: dict[str, str]) -> dict[str, str]:
    """Settings for every broker. Raises UsageError."""
    for key, value in settings.items():
        if key in OF_SLOT:
            raise UsageError(
                f"--set {key}: every broker has its own; --dir, --port, --brokers and --zookeeper "
                "say which"
            )
        if not key.startswith(TABLE_OPTION) and value:
            broker_key(key).parse(value)
    return settings


def check_ensemble(text: str) -> None:
    """`host:port,host:port/chroot`. Raises UsageError."""
    servers, slash, chroot = text.partition("/")
    ports = [server.rpartition(":") for server in servers.split(",")]
    is_bad = any(not host or not port.isdigit() for host, _, port in ports)
    if is_bad or (slash and (not chroot or chroot.endswith("/"))):
        raise UsageError(f"--zookeeper {text!r}: write HOST:PORT,HOST:PORT/chroot")


def _start_detached(options: UpOptions, directory: Path, *, quiet: bool) -> dict[str, Any]:
    """Start the daemon and follow its reports until it is up. Raises when it fails."""
    log_path = directory / "logs" / "supervisor.log"
    with open(log_path, "ab") as log:
        process = subprocess.Popen(
            daemon.command(options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            env={**os.environ, CLUSTER_DIR_VARIABLE: str(directory)},
        )
    try:
        return _follow(process, log_path, quiet=quiet)
    except KeyboardInterrupt:
        process.send_signal(signal.SIGTERM)
        process.wait(STOP_WAIT_S)
        raise


def _follow(process: subprocess.Popen[bytes], log_path: Path, *, quiet: bool) -> dict[str, Any]:
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
                raise (UsageError if event["usage"] else HeadwaterError)(event["error"])
            elif event["event"] == "up":
                up_event: dict[str, Any] = event
                return up_event
    last = deque(log_path.read_text(errors="replace").splitlines(), maxlen=1)
    words = last[0] if last else "it wrote nothing"
    raise HeadwaterError(f"the supervisor ended: {words} (log: {log_path})")


def _foreground(options: UpOptions, as_json: bool) -> int:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="headwater: %(message)s")
    logging.getLogger("kazoo").setLevel(logging.ERROR)
    directory = daemon.prepare_directory(options.directory)

    def report(event: dict[str, Any]) -> None:
        if event["event"] == "up":
            _tell(event["bootstrap_servers"], directory, as_json)
        elif not as_json:
            click.echo(f"{event['text']} ({event['done']}/{event['total']})", err=True)

    return daemon.run(options, report)


def _tell(bootstrap_servers: str, directory: Path, as_json: bool) -> None:
    if as_json:
        echo_json({"bootstrap_servers": bootstrap_servers, "directory": str(directory)})
        return
    click.echo(f"bootstrap servers: {bootstrap_servers}")
    shown = os.path.relpath(directory)
    click.echo(f"data and logs: {shown}   stop it: headwater down --dir {shown}")
