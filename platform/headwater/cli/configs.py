"""`headwater configs`: show and change the configuration of a topic or broker."""

from __future__ import annotations

import click

from headwater.cli.assignments import parse_settings
from headwater.cli.options import bootstrap_options, bootstrap_servers, echo_json, json_option
from headwater.cli.tables import console, table
from headwater.client.admin import Admin
from headwater.client.values import ConfigEntry
from headwater.errors import UsageError

RESOURCE_TYPES = ("topic", "broker", "group")


@click.group()
def configs() -> None:
    """Show and change the configuration of topics and brokers."""


@configs.command("describe")
@click.argument("resource_type", type=click.Choice(RESOURCE_TYPES), metavar="TYPE")
@click.argument("name")
@click.option("--all", "everything", is_flag=True, help="Defaults too.")
@bootstrap_options
@json_option
def describe(
    resource_type: str,
    name: str,
    everything: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Show what is set on TYPE NAME: `topic flights`, `broker 0`."""
    with Admin(bootstrap_servers(bootstrap_server, directory)) as admin:
        entries = admin.describe_configs(resource_type, name)
    shown = {k: e for k, e in sorted(entries.items()) if everything or not e.is_default}
    if as_json:
        echo_json({key: {"value": e.value, "source": e.source} for key, e in shown.items()})
        return 0
    if not shown:
        click.echo(f"{resource_type} {name} overrides nothing; --all shows the defaults")
        return 0
    rows = table(None, "name, value, set by")
    for key, entry in shown.items():
        rows.add_row(key, _shown_value(entry), entry.source)
    console().print(rows)
    return 0


@configs.command("alter")
@click.argument("resource_type", type=click.Choice(RESOURCE_TYPES), metavar="TYPE")
@click.argument("name")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Repeatable.")
@click.option("--unset", "unset", multiple=True, metavar="KEY", help="Back to the default.")
@bootstrap_options
@json_option
def alter(
    resource_type: str,
    name: str,
    settings: tuple[str, ...],
    unset: tuple[str, ...],
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Change TYPE NAME: `topic flights --set retention.ms=3600000 --unset segment.bytes`."""
    changes: dict[str, str | None] = dict(parse_settings(settings, "--set"))
    both = sorted(set(changes) & set(unset))
    if both:
        raise UsageError(f"{', '.join(both)}: given to both --set and --unset")
    changes |= dict.fromkeys(unset)
    if not changes:
        raise UsageError("nothing to change: give --set KEY=VALUE or --unset KEY")
    with Admin(bootstrap_servers(bootstrap_server, directory)) as admin:
        admin.alter_configs(resource_type, name, changes)
    if as_json:
        echo_json({"type": resource_type, "name": name, "changed": changes})
    else:
        click.echo(f"changed {resource_type} {name}: {', '.join(sorted(changes))}")
    return 0


def _shown_value(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return "(hidden)"
    return "" if entry.value is None else entry.value
