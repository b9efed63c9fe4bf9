"""`--command-config FILE`: the properties with which commands log in, as of Kafka's tools."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from headwater.client.security_options import SecurityOptions, security_keywords
from headwater.config.java_properties import read_java_properties
from headwater.ports.credentials import Credentials
from headwater.security.client_keys import security_properties
from headwater.security.client_security import credentials_of

COMMAND_CONFIG_VARIABLE = "HEADWATER_COMMAND_CONFIG"
FOLDERS_FILE = "security/client.properties"
"""In the folder of a secured cluster: for commands that find the cluster by --dir."""
_OPTION = "--command-config"
_KEY = "headwater.command_config"

F = TypeVar("F", bound=Callable[..., Any])


def _keep(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
    if value is not None:
        ctx.meta[_KEY] = value


def command_config_option(function: F, names: tuple[str, ...] = ()) -> F:
    """`--command-config`, and other `names` for it; `client_properties` finds what was given."""
    option = click.option(
        *(names or (_OPTION,)),
        "command_config",
        metavar="FILE",
        expose_value=False,
        callback=_keep,
        hidden=bool(names),
        help="Properties of the client: security.protocol, sasl.*, ssl.*. Default: "
        f"${COMMAND_CONFIG_VARIABLE}, else {FOLDERS_FILE} in --dir, if the cluster is found there.",
    )
    return option(function)


def client_properties() -> dict[str, str]:
    """The security properties of the command that runs. Raises UsageError."""
    path, option = _path()
    return {} if path is None else security_properties(read_java_properties(path, option))


def client_file() -> str | None:
    """The file that `client_properties` reads; None: there is none."""
    return _path()[0]


def _path() -> tuple[str | None, str]:
    """The file and what named it: the option, else the environment, else the cluster's folder."""
    context = click.get_current_context(silent=True)
    if context is not None and _KEY in context.meta:
        return str(context.meta[_KEY]), _OPTION
    if named := os.environ.get(COMMAND_CONFIG_VARIABLE):
        return named, f"${COMMAND_CONFIG_VARIABLE}"
    if context is None or context.params.get("bootstrap_server") is not None:
        return None, ""
    directory = context.params.get("directory")
    if directory is None or os.environ.get("HEADWATER_BOOTSTRAP_SERVERS"):
        return None, ""
    path = Path(directory).expanduser() / FOLDERS_FILE
    return (str(path), FOLDERS_FILE) if path.exists() else (None, "")


def client_security() -> SecurityOptions:
    """The keywords of `Producer`, `Consumer` and `Admin` for the command that runs."""
    return security_keywords(client_properties())


def client_credentials() -> Credentials:
    """The credentials of the command that runs, for blocking clients."""
    return credentials_of(client_properties())
