"""Options that many commands share: the cluster's folder, bootstrap servers, JSON output."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headwater.client.admin.client import BOOTSTRAP_TIMEOUT_MS, Admin
from headwater.errors import UsageError
from headwater.local import cluster_file
from headwater.wire.primitives import INT32_MAX

DIRECTORY_DEFAULT = "headwater-data"
BOOTSTRAP_VARIABLE = "HEADWATER_BOOTSTRAP_SERVERS"
TIMEOUT_DEFAULT_MS = 60_000
"""How long a call of a command is tried."""
REQUEST_TIMEOUT_MS = 30_000
"""One try of it at most."""
WAITS_TOLD_MAX = 3
"""Lines on stderr that say what a command waits for; more would scroll the others away."""

F = TypeVar("F", bound=Callable[..., Any])


def dir_option(function: F) -> F:
    """`--dir`, given to the command as `directory`."""
    return click.option(
        "--dir",
        "directory",
        default=DIRECTORY_DEFAULT,
        show_default=True,
        metavar="D",
        help="The cluster's folder.",
    )(function)


def json_option(function: F) -> F:
    """`--json`, given to the command as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(function)


def timeout_option(function: F) -> F:
    """`--timeout`, given to the command as `timeout_ms`; hand it to `open_admin`."""
    return click.option(
        "--timeout",
        "timeout_ms",
        type=click.IntRange(1, INT32_MAX),
        default=TIMEOUT_DEFAULT_MS,
        show_default=True,
        metavar="MS",
        help="How long to wait for what is away, such as a leader.",
    )(function)


def bootstrap_options(function: F) -> F:
    """`--bootstrap-server` and `--dir`; resolve them with `bootstrap_servers`."""
    option = click.option(
        "--bootstrap-server",
        "--bootstrap-servers",
        "bootstrap_server",
        metavar="HOST:PORT,...",
        help=f"Where the cluster is. Default: ${BOOTSTRAP_VARIABLE}, else the cluster of --dir.",
    )
    return option(dir_option(function))


def bootstrap_servers(given: str | None, directory: str) -> str:
    """The option, else the environment, else the cluster file. Raises UsageError."""
    if given is not None and not given.strip():  # as of "$UNSET": not to be any other cluster
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
    """An Admin of that cluster. No call of its takes longer; stderr is told what one waits for.

    Raises UsageError, NoBrokersAvailableError.
    """
    return Admin(
        bootstrap_servers(given, directory),
        request_timeout_ms=min(timeout_ms, REQUEST_TIMEOUT_MS),
        default_api_timeout_ms=timeout_ms,
        bootstrap_timeout_ms=min(timeout_ms, BOOTSTRAP_TIMEOUT_MS),
        on_wait=Waits(),
    )


class Waits:
    """Tells on stderr what calls wait for; of many that wait at once, the first few."""

    def __init__(self) -> None:
        self._told = 0

    def __call__(self, what: str, limit_ms: int) -> None:
        """As `Admin(on_wait=...)` tells it."""
        self._told += 1
        if self._told <= WAITS_TOLD_MAX:
            more = ", and others" if self._told == WAITS_TOLD_MAX else ""
            text = " ".join(what.split())
            limit = f"{limit_ms / 1000:g} s"
            click.echo(f"headwater: waiting for up to {limit}: {text}{more}", err=True)


def up_command(directory: str) -> str:
    """What starts the cluster of this `--dir`, to be shown."""
    where = "" if directory == DIRECTORY_DEFAULT else f" --dir {shlex.quote(directory)}"
    return f"`headwater up{where}`"


def echo_json(document: Any) -> None:
    """Print one JSON document, keys in the order given."""
    click.echo(json.dumps(document, indent=2, default=str))
