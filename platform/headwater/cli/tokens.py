"""`headwater tokens`: delegation tokens, as kafka-delegation-tokens.sh does it (KIP-48)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from headwater.cli.console_tables import console, table
from headwater.cli.options import bootstrap_options, echo_json, json_option, open_admin
from headwater.client.admin.client import Admin
from headwater.client.admin.tokens import AT_ONCE, BROKERS_LIMIT, DelegationToken
from headwater.errors import UsageError

period_option = click.option(
    "--period", "period_ms", type=click.IntRange(-1), default=-1, metavar="MS",
    help="For how long from now; -1: as long as the brokers allow, or at once for `expire`.",
)  # fmt: skip


@click.group()
def tokens() -> None:
    """Make, show, renew and end delegation tokens: logins that last hours, for jobs.

    A token's id is the user name and its HMAC the password of a SCRAM login with tokenauth=true.
    """


@tokens.command("list")
@click.option("--owner-principal", "owners", multiple=True, metavar="NAME",
              help="Only tokens of User:alice. May be repeated.")  # fmt: skip
@bootstrap_options
@json_option
def list_tokens(
    owners: tuple[str, ...], bootstrap_server: str | None, directory: str, as_json: bool
) -> int:
    """Show the tokens that you may see, without their HMACs."""
    with open_admin(bootstrap_server, directory) as admin:
        found = admin.describe_delegation_tokens(owners or None)
    if as_json:
        echo_json([_document(token) for token in found])
    elif not found:
        click.echo("no token")
    else:
        made = table(None, "id, owner, requester, renewers, issued, expires, at the latest")
        for token in found:
            row = _document(token)
            made.add_row(*(", ".join(v) if isinstance(v, list) else v for v in row.values()))
        console().print(made)
    return 0


@tokens.command("create")
@click.option("--owner-principal", "owner", metavar="NAME", help="Its owner. [default: you]")
@click.option("--renewer-principal", "renewers", multiple=True, metavar="NAME",
              help="Who may renew it beside its owner. May be repeated.")  # fmt: skip
@click.option("--max-life-time-period", "max_lifetime_ms", type=click.IntRange(-1), metavar="MS",
              default=BROKERS_LIMIT,
              help="Its longest lifetime; -1: as long as the brokers allow.")  # fmt: skip
@bootstrap_options
@json_option
def create(
    owner: str | None,
    renewers: tuple[str, ...],
    max_lifetime_ms: int,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Make a token and print it with its HMAC, which is a secret."""
    with open_admin(bootstrap_server, directory) as admin:
        token = admin.create_delegation_token(
            owner=owner, renewers=renewers, max_lifetime_ms=max_lifetime_ms
        )
    if as_json:
        echo_json({**_document(token), "hmac": token.password})
        return 0
    click.echo(f"id     {token.token_id}")
    click.echo(f"HMAC   {token.password}")
    click.echo(f"owner  {token.owner}, expires {_time(token.expiry_timestamp)}, at the latest"
               f" {_time(token.max_timestamp)}")  # fmt: skip
    return 0


@tokens.command("renew")
@click.argument("token_id", metavar="ID")
@period_option
@bootstrap_options
@json_option
def renew(
    token_id: str, period_ms: int, bootstrap_server: str | None, directory: str, as_json: bool
) -> int:
    """Make the token with this id valid for longer."""
    with open_admin(bootstrap_server, directory) as admin:
        expiry = admin.renew_delegation_token(_hmac(admin, token_id), period_ms=period_ms)
    return _show_expiry(expiry, as_json=as_json)


@tokens.command("expire")
@click.argument("token_id", metavar="ID")
@period_option
@bootstrap_options
@json_option
def expire(
    token_id: str, period_ms: int, bootstrap_server: str | None, directory: str, as_json: bool
) -> int:
    """End the token with this id: at once, or after a period."""
    period = AT_ONCE if period_ms < 0 else period_ms
    with open_admin(bootstrap_server, directory) as admin:
        expiry = admin.expire_delegation_token(_hmac(admin, token_id), period_ms=period)
    return _show_expiry(expiry, as_json=as_json)


def _hmac(admin: Admin, token_id: str) -> bytes:
    """The HMAC of a token. Kafka's tool takes it as an argument, which every process may read.

    Raises UsageError.
    """
    for token in admin.describe_delegation_tokens():
        if token.token_id == token_id:
            return token.hmac
    raise UsageError("no token that you may see has this id: see `headwater tokens list`")


def _show_expiry(expiry_ms: int, *, as_json: bool) -> int:
    if as_json:
        echo_json({"expires": _time(expiry_ms)})
    else:
        click.echo(f"expires {_time(expiry_ms)}")
    return 0


def _document(token: DelegationToken) -> dict[str, Any]:
    return {
        "token_id": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": _time(token.issue_timestamp),
        "expires": _time(token.expiry_timestamp),
        "expires_at_the_latest": _time(token.max_timestamp),
    }


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).isoformat(timespec="seconds")
