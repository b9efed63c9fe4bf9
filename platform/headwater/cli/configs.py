"""`headwater configs`: configurations of topics, groups and brokers, and client quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from rich.table import Table

from headwater.cli.console_tables import console, table
from headwater.cli.existing_topics import nearest_suggested
from headwater.cli.options import bootstrap_options, echo_json, json_option, open_admin
from headwater.cli.partition_arguments import read_text
from headwater.cli.quotas import (
    ALL_QUOTAS,
    QUOTA_TYPES,
    quota_changes,
    quota_entity,
    show_quotas,
)
from headwater.cli.settings import parse_settings
from headwater.client.admin.client import Admin, ResourceType
from headwater.client.values import ConfigEntry
from headwater.config.keys import broker_key, group_key, topic_key
from headwater.config.load import parse_properties
from headwater.errors import UsageError

OF_USER_HELP = "With `client`: the quota of this user and client together."
RESOURCES = ("topic", "group", "broker", "brokers", *QUOTA_TYPES)
"""`brokers` takes no name: the cluster-wide dynamic default of all brokers."""


_KINDS: dict[str, ResourceType] = {"broker": "broker", "topic": "topic", "group": "group"}
_KEY_OF = {"topic": topic_key, "broker": broker_key, "group": group_key}


@click.group()
def configs() -> None:
    """Show and change configurations of topics, groups and brokers, and client quotas."""


@configs.command("describe")
@click.argument("resource_type", type=click.Choice(RESOURCES), metavar="TYPE")
@click.argument("name", default="")
@click.option("--of-user", metavar="USER", help=OF_USER_HELP)
@click.option("--all", "everything", is_flag=True, help="Show defaults too.")
@click.option("--doc", "with_doc", is_flag=True, help="Show the documentation of each key.")
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
    """Show the configuration of TYPE NAME.

    \b
    topic flights, broker 0       a topic, a broker
    group billing                 a consumer group or share group
    brokers                       the default of all brokers
    client app, user u, ip A      client quotas of one entity
    clients, users, ips           the default client quotas
    quotas                        all client quotas
    """
    if resource_type in QUOTA_TYPES:
        is_all = resource_type == ALL_QUOTAS
        entity = None if is_all else quota_entity(resource_type, name, of_user)
        with open_admin(bootstrap_server, directory) as admin:
            show_quotas(admin.describe_client_quotas(entity), as_json=as_json)
        return 0
    kind = _kind(resource_type, name)
    with open_admin(bootstrap_server, directory) as admin, nearest_suggested(admin, [name]):
        entries = admin.describe_configs(kind, name, patient=False)
    shown = {k: e for k, e in sorted(entries.items()) if everything or not e.is_default}
    if as_json:
        echo_json({key: _document(entry) for key, entry in shown.items()})
    elif not shown:
        resource = f"{resource_type} {name}".rstrip()
        hint = "" if resource_type == "brokers" else "; --all shows the defaults"
        click.echo(f"{resource}: nothing is set{hint}")
    else:
        console().print(_table(shown, with_doc=with_doc))
    return 0


@configs.command("alter")
@click.argument("resource_type", type=click.Choice(RESOURCES), metavar="TYPE")
@click.argument("name", default="")
@click.option("--of-user", metavar="USER", help=OF_USER_HELP)
@click.option("--set", "--add-config", "settings", multiple=True, metavar="KEY=VALUE",
              help="Set a key. May be repeated.")  # fmt: skip
@click.option("--set-file", "--add-config-file", "files", multiple=True, metavar="FILE",
              help="Set the keys of a properties file. May be repeated.")  # fmt: skip
@click.option("--unset", "--delete-config", "unset", multiple=True, metavar="KEY",
              help="Reset a key to its default. May be repeated.")  # fmt: skip
@click.option("--validate-only", is_flag=True, help="Check the change, do not make it.")
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
    """Change the configuration of TYPE NAME. Keys that are not named keep their values.

    \b
    headwater configs alter topic flights --set retention.ms=3600000 --unset segment.bytes
    headwater configs alter group billing --set consumer.session.timeout.ms=50000
    headwater configs alter brokers --set log.retention.ms=86400000
    headwater configs alter client app --set producer_byte_rate=1048576
    """
    is_quota = resource_type in QUOTA_TYPES
    kind = None if is_quota else _kind(resource_type, name)
    for key in () if is_quota else unset:  # the broker accepts unknown names here
        _KEY_OF[kind or "broker"](key)
    changes = _changes(settings, files, unset)
    with open_admin(bootstrap_server, directory) as admin:
        if kind is None:
            _alter_quotas(admin, resource_type, name, of_user, changes, validate_only)
        else:
            with nearest_suggested(admin, [name]):
                admin.alter_configs(kind, name, changes, validate_only=validate_only)
    if as_json:
        change = {"type": resource_type, "name": name, "changed": changes}
        echo_json({**change, "validate_only": validate_only})
    else:
        resource = f"{resource_type} {name}".rstrip()
        verb = "could change" if validate_only else "changed"
        click.echo(f"{verb} {resource}: {', '.join(sorted(changes))}")
    return 0


def _changes(
    settings: tuple[str, ...], files: tuple[str, ...], unset: tuple[str, ...]
) -> dict[str, str | None]:
    """Key -> its new value, or None to reset it. Raises UsageError, also for a repeated key."""
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
    """The resource type of the Admin API. Raises UsageError."""
    if resource_type == "brokers":
        if name:
            raise UsageError(f"`brokers` means all brokers; for one write `broker {name}`")
        return "broker"
    if not name:
        raise UsageError(f"which {resource_type}? Write `{resource_type} NAME`")
    return _KINDS[resource_type]


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
    headings = "name, value, default, type, source"
    rows = table(None, f"{headings}, documentation" if with_doc else headings)
    rows.columns[0].no_wrap = True
    for key, entry in shown.items():
        cells = (key, _shown(entry, entry.value), _shown(entry, entry.default))
        doc = (entry.documentation or "",) if with_doc else ()
        rows.add_row(*cells, entry.config_type, entry.source, *doc)
    return rows


def _shown(entry: ConfigEntry, value: str | None) -> str:
    if entry.is_sensitive:
        return "(hidden)"
    return "" if value is None else value
