"""`headwater registry subjects`, `schema`, `register`, `check`: questions to a running registry."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import click

from headwater.cli.command_config import client_properties, command_config_option
from headwater.cli.options import dir_option, echo_json, json_option, within
from headwater.errors import EXIT_FAILED, UsageError
from headwater.local.service_spec import REGISTRY_PORT
from headwater_gateway.registry.remote import RemoteRegistry
from headwater_gateway.registry.values import AVRO, SCHEMA_TYPES

URL_VARIABLE = "HEADWATER_SCHEMA_REGISTRY"
URL_DEFAULT = f"http://127.0.0.1:{REGISTRY_PORT}"
STDIN = "-"

F = TypeVar("F", bound=Callable[..., Any])


def registry_options(function: F) -> F:
    """`--url`, `--dir`, `--command-config`."""
    option = click.option(
        "--url", metavar="URL", help=f"The registry. Default: ${URL_VARIABLE}, else {URL_DEFAULT}."
    )
    return option(dir_option(command_config_option(function)))


type_option = click.option(
    "--type",
    "schema_type",
    type=click.Choice(SCHEMA_TYPES, case_sensitive=False),
    default=AVRO,
    show_default=True,
    help="The schema's language.",
)


def remote(url: str | None) -> RemoteRegistry:
    """The registry that the options name. Raises UsageError."""
    return RemoteRegistry(url or os.environ.get(URL_VARIABLE) or URL_DEFAULT, client_properties())


@click.command()
@click.option("--deleted", is_flag=True, help="Softly deleted ones too.")
@registry_options
@json_option
def subjects(deleted: bool, url: str | None, directory: str, as_json: bool) -> int:
    """List the subjects that the user may read."""
    found = remote(url).ask("GET", f"/subjects?deleted={str(deleted).lower()}")
    if as_json:
        echo_json(found)
    else:
        for name in found:
            click.echo(name)
    return 0


@click.command()
@click.argument("subject", required=False)
@click.option("--version", "number", type=int, callback=within(1, 2**31 - 1), metavar="N",
              help="This version. [default: the latest]")  # fmt: skip
@click.option("--id", "schema_id", type=int, callback=within(0, 2**31 - 1), metavar="N",
              help="The schema with this id, instead of a subject.")  # fmt: skip
@registry_options
@json_option
def schema(
    subject: str | None,
    number: int | None,
    schema_id: int | None,
    url: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Show a schema: of SUBJECT, or with an id."""
    if (subject is None) == (schema_id is None):
        raise UsageError("give a SUBJECT or --id, one of them")
    path = f"/schemas/ids/{schema_id}"
    if subject is not None:
        path = f"/subjects/{quote(subject, safe='')}/versions/{number or 'latest'}"
    found = remote(url).ask("GET", path)
    _show(found, found["schema"], as_json)
    return 0


@click.command()
@click.argument("subject")
@click.argument("file")
@type_option
@registry_options
@json_option
def register(
    subject: str, file: str, schema_type: str, url: str | None, directory: str, as_json: bool
) -> int:
    """Register the schema of FILE (-: standard input) in SUBJECT; print its id."""
    path = f"/subjects/{quote(subject, safe='')}/versions"
    found = remote(url).ask("POST", path, _body(file, schema_type))
    _show(found, found["id"], as_json)
    return 0


@click.command()
@click.argument("subject")
@click.argument("file")
@type_option
@registry_options
@json_option
def check(
    subject: str, file: str, schema_type: str, url: str | None, directory: str, as_json: bool
) -> int:
    """Would the schema of FILE fit SUBJECT by its compatibility level? 1 if not, with reasons."""
    path = f"/compatibility/subjects/{quote(subject, safe='')}/versions?verbose=true"
    found = remote(url).ask("POST", path, _body(file, schema_type))
    if as_json:
        echo_json(found)
    else:
        click.echo("fits" if found["is_compatible"] else "does not fit")
        for reason in found["messages"]:
            click.echo(f"  {reason}")
    return 0 if found["is_compatible"] else EXIT_FAILED


def _show(found: Any, text: Any, as_json: bool) -> None:
    """The whole answer as JSON, or the part of it that a person asks for."""
    if as_json:
        echo_json(found)
    else:
        click.echo(text)


def _body(file: str, schema_type: str) -> dict[str, Any]:
    if file == STDIN:
        return {"schema": sys.stdin.read(), "schemaType": schema_type}
    try:
        text = Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from error
    return {"schema": text, "schemaType": schema_type}
