"""Client quotas in `headwater configs`: of `client app`, `user u`, `ip A`, and their defaults."""

from __future__ import annotations

import click

from headwater.cli.console_tables import console, table
from headwater.cli.options import echo_json
from headwater.client.values import ClientQuotas
from headwater.config.quota_precedence import CLIENT_ID, DEFAULT, IP, USER, check_quota_key
from headwater.errors import UsageError

SINGULAR = {"client": CLIENT_ID, "user": USER, "ip": IP}
PLURAL = {"clients": CLIENT_ID, "users": USER, "ips": IP}
"""These take no name: they are the default, for entities without a quota of their own."""
ALL_QUOTAS = "quotas"
"""All entities with a quota; for `describe` only."""
QUOTA_TYPES = (*SINGULAR, *PLURAL, ALL_QUOTAS)

Entity = dict[str, str | None]


def quota_entity(resource_type: str, name: str, of_user: str | None) -> Entity:
    """The entity of the arguments TYPE NAME and --of-user. Raises UsageError."""
    if resource_type in PLURAL:
        if name:
            one = resource_type.removesuffix("s")
            raise UsageError(f"`{resource_type}` means the default; for one write `{one} {name}`")
        kind, found = PLURAL[resource_type], None
    else:
        if not name:
            raise UsageError(f"which {resource_type}? Write `{resource_type} NAME`")
        kind, found = SINGULAR[resource_type], None if name == DEFAULT else name
    if of_user is None:
        return {kind: found}
    if kind != CLIENT_ID:
        raise UsageError(f"--of-user goes with a client, not with {resource_type}")
    return {USER: None if of_user == DEFAULT else of_user, kind: found}


def quota_changes(entity: Entity, changes: dict[str, str | None]) -> dict[str, float | None]:
    """The changes with numbers as values. Raises UsageError that names the key."""
    found: dict[str, float | None] = {}
    for key, text in changes.items():
        check_quota_key(entity, key)
        try:
            found[key] = None if text is None else float(text)
        except ValueError:
            raise UsageError(f"quota {key}: {text!r} is not a number") from None
    return found


def show_quotas(rows: list[ClientQuotas], *, as_json: bool) -> None:
    """Print quotas as a table or as JSON."""
    shown = [row for row in rows if row.quotas]
    if as_json:
        echo_json([{"entity": row.entity, "quotas": row.quotas} for row in shown])
    elif not shown:
        click.echo("no quota is set")
    else:
        made = table(None, "entity, quota, value")
        for row in shown:
            for key, value in row.quotas.items():
                made.add_row(_named(row.entity), key, f"{value:.15g}")
        console().print(made)


def _named(entity: Entity) -> str:
    return ", ".join(f"{kind} {DEFAULT if n is None else n}" for kind, n in entity.items())
