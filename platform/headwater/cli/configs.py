"""`headwater configs`: show and change the configuration of topics and brokers."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table

from headwater.cli.assignments import parse_settings
from headwater.cli.options import bootstrap_options, bootstrap_servers, echo_json, json_option
from headwater.cli.tables import console, table
from headwater.client.admin import Admin
from headwater.client.values import ConfigEntry
from headwater.config.keys import broker_key, topic_key
from headwater.errors import UsageError

RESOURCES = ("topic", "broker", "brokers")
"""`brokers` takes no name: what is set for all brokers."""


@click.group()
def configs() -> None:
    """Show and change the configuration of topics and brokers."""


@configs.command("describe")
@click.argument("resource_type", type=click.Choice(RESOURCES), metavar="TYPE")
@click.argument("name", default="")
@click.option("--all", "everything", is_flag=True, help="Defaults too.")
@click.option("--doc", "with_doc", is_flag=True, help="What each key means.")
@bootstrap_options
@json_option
def describe(
    resource_type: str,
    name: str,
    everything: bool,
    with_doc: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Show what is set on TYPE NAME: `topic flights`, `broker 0`, `brokers` (for all of them)."""
    kind = _kind(resource_type, name)
    with Admin(bootstrap_servers(bootstrap_server, directory)) as admin:
        entries = admin.describe_configs(kind, name)
    shown = {k: e for k, e in sorted(entries.items()) if everything or not e.is_default}
    if as_json:
        echo_json({key: _document(entry) for key, entry in shown.items()})
    elif not shown:
        what = f"{resource_type} {name}".rstrip()
        hint = "" if resource_type == "brokers" else "; --all shows the defaults"
        click.echo(f"{what}: nothing is set{hint}")
    else:
        console().print(_table(shown, with_doc=with_doc))
    return 0


@configs.command("alter")
@click.argument("resource_type", type=click.Choice(RESOURCES), metavar="TYPE")
@click.argument("name", default="")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Repeatable.")
@click.option("--unset", "unset", multiple=True, metavar="KEY", help="Back to the default.")
@click.option("--validate-only", is_flag=True, help="Only say whether it could be done.")
@bootstrap_options
@json_option
def alter(
    resource_type: str,
    name: str,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    validate_only: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Change TYPE NAME: `topic flights --set retention.ms=3600000 --unset segment.bytes`."""
    kind = _kind(resource_type, name)
    changes: dict[str, str | None] = dict(parse_settings(settings, "--set"))
    both = sorted(set(changes) & set(unset))
    if both:
        raise UsageError(f"{', '.join(both)}: given to both --set and --unset")
    for key in unset:  # the broker lets unknown names pass here; a slip of the pen should not
        (topic_key if kind == "topic" else broker_key)(key)
    changes |= dict.fromkeys(unset)
    if not changes:
        raise UsageError("nothing to change: give --set KEY=VALUE or --unset KEY")
    with Admin(bootstrap_servers(bootstrap_server, directory)) as admin:
        admin.alter_configs(kind, name, changes, validate_only=validate_only)
    if as_json:
        told = {"type": resource_type, "name": name, "changed": changes}
        echo_json({**told, "validate_only": validate_only})
    else:
        what = f"{resource_type} {name}".rstrip()
        verb = "could change" if validate_only else "changed"
        click.echo(f"{verb} {what}: {', '.join(sorted(changes))}")
    return 0


def _kind(resource_type: str, name: str) -> str:
    """The resource's type on the wire. Raises UsageError."""
    if resource_type == "brokers":
        if name:
            raise UsageError(f"`brokers` means all brokers; for one write `broker {name}`")
        return "broker"
    if not name:
        raise UsageError(f"which {resource_type}? Write `{resource_type} NAME`")
    return resource_type


def _document(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "value": entry.value,
        "source": entry.source,
        "default": entry.default,
        "type": entry.config_type,
        "read_only": entry.read_only,
        "documentation": entry.documentation,
    }


def _table(shown: dict[str, ConfigEntry], *, with_doc: bool) -> Table:
    headings = "name, value, default, type, set by"
    rows = table(None, f"{headings}, meaning" if with_doc else headings)
    for key, entry in shown.items():
        cells = (key, _shown(entry, entry.value), _shown(entry, entry.default))
        doc = (entry.documentation or "",) if with_doc else ()
        rows.add_row(*cells, entry.config_type, entry.source, *doc)
    return rows


def _shown(entry: ConfigEntry, value: str | None) -> str:
    if entry.is_sensitive:
        return "(hidden)"
    return "" if value is None else value
