"""`headwater configs`: show and change configurations of topics and brokers, and client quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from rich.table import Table

from headwater.cli.assignments import parse_settings
from headwater.cli.options import bootstrap_options, echo_json, json_option, open_admin
from headwater.cli.partitions import read_text
from headwater.cli.quotas import (
    ALL_QUOTAS,
    QUOTA_TYPES,
    quota_changes,
    quota_entity,
    show_quotas,
)
from headwater.cli.tables import console, table
from headwater.client.admin.client import Admin, ResourceType
from headwater.client.values import ConfigEntry
from headwater.config.keys import broker_key, topic_key
from headwater.config.load import parse_properties
from headwater.errors import UsageError

RESOURCES = ("topic", "broker", "brokers", *QUOTA_TYPES)
"""`brokers` takes no name: what is set for all brokers."""


@click.group()
def configs() -> None:
    """Show and change the configuration of topics and brokers, and client quotas."""


@configs.command("describe")
@click.argument("resource_type", type=click.Choice(RESOURCES), metavar="TYPE")
@click.argument("name", default="")
@click.option("--of-user", metavar="USER", help="With a client: only as this user's.")
@click.option("--all", "everything", is_flag=True, help="Defaults too.")
@click.option("--doc", "with_doc", is_flag=True, help="What each key means.")
@bootstrap_options
@json_option
def describe(
    resource_type: str,
    name: str,
    of_user: str | None,
    everything: bool,
    with_doc: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Show what is set on TYPE NAME: `topic flights`, `broker 0`, `brokers` (for all of them).

    Client quotas: `client app`, `user alice`, `ip 10.0.0.1`; `clients`, `users`, `ips` for the
    default of each; `quotas` for every one that is set.
    """
    if resource_type in QUOTA_TYPES:
        is_all = resource_type == ALL_QUOTAS
        entity = None if is_all else quota_entity(resource_type, name, of_user)
        with open_admin(bootstrap_server, directory) as admin:
            show_quotas(admin.describe_client_quotas(entity), as_json=as_json)
        return 0
    kind = _kind(resource_type, name)
    with open_admin(bootstrap_server, directory) as admin:
        entries = admin.describe_configs(kind, name, patient=False)
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
@click.option("--of-user", metavar="USER", help="With a client: only as this user's.")
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Repeatable.")
@click.option("--set-file", "--add-config-file", "files", multiple=True, metavar="FILE",
              help="A properties file of what to set. Repeatable.")  # fmt: skip
@click.option("--unset", "unset", multiple=True, metavar="KEY", help="Back to the default.")
@click.option("--validate-only", is_flag=True, help="Only say whether it could be done.")
@bootstrap_options
@json_option
def alter(
    resource_type: str,
    name: str,
    of_user: str | None,
    settings: tuple[str, ...],
    files: tuple[str, ...],
    unset: tuple[str, ...],
    validate_only: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Change TYPE NAME: `topic flights --set retention.ms=3600000 --unset segment.bytes`,
    `client app --set producer_byte_rate=1048576`."""
    is_quota = resource_type in QUOTA_TYPES
    kind = None if is_quota else _kind(resource_type, name)
    for key in () if is_quota else unset:  # the broker lets unknown names pass here
        (topic_key if kind == "topic" else broker_key)(key)
    changes = _changes(settings, files, unset)
    with open_admin(bootstrap_server, directory) as admin:
        if kind is None:
            _alter_quotas(admin, resource_type, name, of_user, changes, validate_only)
        else:
            admin.alter_configs(kind, name, changes, validate_only=validate_only)
    if as_json:
        told = {"type": resource_type, "name": name, "changed": changes}
        echo_json({**told, "validate_only": validate_only})
    else:
        what = f"{resource_type} {name}".rstrip()
        verb = "could change" if validate_only else "changed"
        click.echo(f"{verb} {what}: {', '.join(sorted(changes))}")
    return 0


def _changes(
    settings: tuple[str, ...], files: tuple[str, ...], unset: tuple[str, ...]
) -> dict[str, str | None]:
    """Values to set, None to unset. Raises UsageError, also for a key that is given twice."""
    changes: dict[str, str | None] = {}
    given: list[tuple[str, Mapping[str, str | None]]]
    given = [("--set", parse_settings(settings, "--set"))]
    given += [(path, parse_properties(read_text(path), path)) for path in files]
    given.append(("--unset", dict.fromkeys(unset)))
    origins: dict[str, str] = {}
    for origin, rows in given:
        both = sorted(set(changes) & set(rows))
        if both:
            raise UsageError(f"{', '.join(both)}: given to both {origins[both[0]]} and {origin}")
        changes |= rows
        origins |= dict.fromkeys(rows, origin)
    if not changes:
        raise UsageError("nothing to change: give --set KEY=VALUE, --set-file or --unset KEY")
    return changes


def _alter_quotas(
    admin: Admin,
    resource_type: str,
    name: str,
    of_user: str | None,
    changes: dict[str, str | None],
    validate_only: bool,
) -> None:
    if resource_type == ALL_QUOTAS:
        raise UsageError("`quotas` shows all of them; change one: `client NAME`, `clients`, ...")
    entity = quota_entity(resource_type, name, of_user)
    quotas = quota_changes(entity, changes)
    admin.alter_client_quotas(entity, quotas, validate_only=validate_only)


def _kind(resource_type: str, name: str) -> ResourceType:
    """The resource's type on the wire. Raises UsageError."""
    if resource_type == "brokers":
        if name:
            raise UsageError(f"`brokers` means all brokers; for one write `broker {name}`")
        return "broker"
    if not name:
        raise UsageError(f"which {resource_type}? Write `{resource_type} NAME`")
    return "broker" if resource_type == "broker" else "topic"


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
