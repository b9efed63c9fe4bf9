"""Options that many commands share: bootstrap servers, the cluster's folder, JSON output."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from headwater.cli.command_config import client_security, command_config_option
from headwater.client.admin.client import BOOTSTRAP_TIMEOUT_MS, Admin
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.local import cluster_file
from headwater.wire.primitives import INT32_MAX

DIRECTORY_DEFAULT = "headwater-data"
BOOTSTRAP_VARIABLE = "HEADWATER_BOOTSTRAP_SERVERS"
TIMEOUT_DEFAULT_MS = 60_000
"""Time limit of a call with its retries."""
REQUEST_TIMEOUT_MS = 30_000
"""Time limit of one request."""
WAITS_SHOWN_MAX = 3
"""Lines on stderr about what a command waits for; more would scroll the first ones away."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")


def within(least: int, most: int) -> Callable[..., Any]:
    """A callback for options of `type=int`: the number must be in this range.

    Unlike `click.IntRange` it does not print ranges such as 0<=x<=9223372036854775807 in `--help`.
    """

    def check(_ctx: click.Context, _param: click.Parameter, value: int | None) -> int | None:
        if value is not None and not least <= value <= most:
            raise click.BadParameter(f"{value} is not in the range {least} to {most}.")
        return value

    return check


def dir_option(function: F) -> F:
    """`--dir`; the command's parameter is `directory`."""
    return click.option(
        "--dir",
        "directory",
        default=DIRECTORY_DEFAULT,
        show_default=True,
        metavar="D",
        help="Folder of the cluster.",
    )(function)


execute_option = click.option("--execute", is_flag=True, help="Do it.")


def dry_run_option(shown: str) -> Callable[[F], F]:
    """`--dry-run`, the default of commands with `--execute`; `shown`: what is only shown."""
    return click.option("--dry-run", is_flag=True, help=f"Show {shown} only. This is the default.")


def check_dry_run(dry_run: bool, execute: bool) -> None:
    """Raises UsageError for both options at once."""
    if dry_run and execute:
        raise UsageError("give --dry-run or --execute, not both")


def found_and_unknown(
    names: Iterable[str], describe: Callable[[str], T], unknown: ErrorCode
) -> tuple[list[T], list[str]]:
    """What `describe` says of each name, once each, and the names that it answers `unknown`."""
    found, missing = [], []
    for name in dict.fromkeys(names):
        try:
            found.append(describe(name))
        except KafkaError as error:
            if error.code is not unknown:
                raise
            missing.append(name)
    return found, missing


def json_option(function: F) -> F:
    """`--json`; the command's parameter is `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def timeout_option(function: F) -> F:
    """`--timeout`; the command's parameter is `timeout_ms`, for `open_admin`."""
    return click.option(
        "--timeout",
        "timeout_ms",
        type=int,
        callback=within(1, INT32_MAX),
        default=TIMEOUT_DEFAULT_MS,
        show_default=True,
        metavar="MS",
        help="Time limit of each call in ms, for example while a partition has no leader.",
    )(function)


def bootstrap_options(function: F) -> F:
    """`--bootstrap-server` and `--dir`, for `bootstrap_servers`; `--command-config`."""
    option = click.option(
        "--bootstrap-server",
        "--bootstrap-servers",
        "bootstrap_server",
        metavar="HOST:PORT,...",
        help=f"Brokers to connect to. Default: ${BOOTSTRAP_VARIABLE}, else the cluster of --dir.",
    )
    return option(dir_option(command_config_option(function)))


def bootstrap_servers(given: str | None, directory: str) -> str:
    """The bootstrap servers: the option, else the environment, else cluster.json in the folder.
    Raises UsageError."""
    if given is not None and not given.strip():  # "$UNSET" must not mean another cluster
        raise UsageError("--bootstrap-server is empty: give HOST:PORT,..., or leave it out")
    found = given or os.environ.get(BOOTSTRAP_VARIABLE)
    if found:
        return found
    cluster = cluster_file.load(Path(directory).expanduser().resolve())
    if cluster is None:
        raise UsageError(
            f"which cluster? No --bootstrap-server, no ${BOOTSTRAP_VARIABLE}, and {directory} "
            f"holds none: name one, or start one with {up_command(directory)}"
        )
    if not cluster.running:
        raise UsageError(
            f"the cluster of {directory} is down: start it with {up_command(directory)}"
        )
    return cluster.bootstrap_servers


def open_admin(given: str | None, directory: str, timeout_ms: int = TIMEOUT_DEFAULT_MS) -> Admin:
    """An Admin of the cluster, with this time limit for each call. It shows on stderr what a call
    waits for. Raises UsageError, NoBrokersAvailableError."""
    return Admin(
        bootstrap_servers(given, directory),
        request_timeout_ms=min(timeout_ms, REQUEST_TIMEOUT_MS),
        default_api_timeout_ms=timeout_ms,
        bootstrap_timeout_ms=min(timeout_ms, BOOTSTRAP_TIMEOUT_MS),
        on_wait=WaitReport(),
        **client_security(),
    )


class WaitReport:
    """Shows on stderr what calls wait for. When many wait at the same time, it shows the first."""

    def __init__(self) -> None:
        self._shown = 0

    def __call__(self, reason: str, limit_ms: int) -> None:
        """The `on_wait` of `Admin`."""
        self._shown += 1
        if self._shown <= WAITS_SHOWN_MAX:
            more = ", and others" if self._shown == WAITS_SHOWN_MAX else ""
            text = " ".join(reason.split())
            limit = f"{limit_ms / 1000:g} s"
            click.echo(f"headwater: waiting for up to {limit}: {text}{more}", err=True)


def up_command(directory: str) -> str:
    """The command that starts the cluster of this `--dir`, for messages."""
    return f"`{command_for('up', directory)}`"


def command_for(command: str, directory: str) -> str:
    """`headwater COMMAND --dir D`, without a `--dir` that is the default."""
    where = "" if directory == DIRECTORY_DEFAULT else f" --dir {shlex.quote(directory)}"
    return f"headwater {command}{where}"


def echo_json(document: Any) -> None:
    """Print one JSON document; keys keep their order."""
    click.echo(json.dumps(document, indent=2, default=str))
