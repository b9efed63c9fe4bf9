"""Options that many commands share: the cluster's folder, bootstrap servers, JSON output."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headwater.errors import UsageError
from headwater.local import cluster_file

DIRECTORY_DEFAULT = "headwater-data"
BOOTSTRAP_VARIABLE = "HEADWATER_BOOTSTRAP_SERVERS"

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


def up_command(directory: str) -> str:
    """What starts the cluster of this `--dir`, to be shown."""
    where = "" if directory == DIRECTORY_DEFAULT else f" --dir {shlex.quote(directory)}"
    return f"`headwater up{where}`"


def echo_json(document: Any) -> None:
    """Print one JSON document, keys in the order given."""
    click.echo(json.dumps(document, indent=2, default=str))
