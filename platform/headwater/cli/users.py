"""`headwater users`: SCRAM users, as kafka-configs.sh --entity-type users does it."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headwater.cli.console_tables import console, table
from headwater.cli.options import bootstrap_options, echo_json, json_option, open_admin
from headwater.client.admin.scram import ITERATIONS_DEFAULT, ScramDeletion, ScramUpsertion
from headwater.errors import UsageError
from headwater.security.scram_credential import ScramMechanism
from headwater.security.secret import REFERENCES, is_reference

MECHANISMS = [mechanism.value for mechanism in ScramMechanism]
STDIN = "-"

mechanism_option = click.option(
    "--mechanism", type=click.Choice(MECHANISMS, case_sensitive=False), default="SCRAM-SHA-512",
    show_default=True, help="The SASL mechanism.",
)  # fmt: skip


@click.group()
def users() -> None:
    """Show, add and remove users that log in with a password (SCRAM).

    A new user may do nothing until `headwater acls add` allows it.
    """


@users.command("list")
@click.argument("names", nargs=-1, metavar="[USER]...")
@bootstrap_options
@json_option
def list_users(
    names: tuple[str, ...], bootstrap_server: str | None, directory: str, as_json: bool
) -> int:
    """Show users with their mechanisms: all, or the named ones. Passwords are stored nowhere."""
    with open_admin(bootstrap_server, directory) as admin:
        found = admin.describe_user_scram_credentials(names or None)
    missing = [name for name in names if name not in found]
    if as_json:
        echo_json({"users": found, "missing": missing})
    elif found:
        made = table(None, "user, mechanism, iterations")
        for user, mechanisms in sorted(found.items()):
            for mechanism, iterations in mechanisms.items():
                made.add_row(user, mechanism, str(iterations))
        console().print(made)
    elif not missing:
        click.echo("no user")
    for name in missing:
        click.echo(f"headwater: no user {name}", err=True)
    return 1 if missing else 0


@users.command("add")
@click.argument("name", metavar="USER")
@click.option("--password-file", metavar="FILE",
              help="File with the password in its first line; - reads stdin.")  # fmt: skip
@mechanism_option
@click.option("--iterations", type=int, default=ITERATIONS_DEFAULT, show_default=True, metavar="N",
              help="Cost of one guess: 4096 to 16384.")  # fmt: skip
@bootstrap_options
@json_option
def add(
    name: str,
    password_file: str | None,
    mechanism: str,
    iterations: int,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Add USER, or give it a new password.

    The password is asked for, or read from a file: in an argument every process would see it.
    """
    change = ScramUpsertion(name, _password(password_file), mechanism, iterations)
    with open_admin(bootstrap_server, directory) as admin:
        admin.alter_user_scram_credentials([change])
    if as_json:
        echo_json({"user": name, "mechanism": mechanism, "iterations": iterations})
    else:
        click.echo(f"user {name} logs in by {mechanism}")
    return 0


@users.command("remove")
@click.argument("name", metavar="USER")
@mechanism_option
@bootstrap_options
@json_option
def remove(
    name: str, mechanism: str, bootstrap_server: str | None, directory: str, as_json: bool
) -> int:
    """Remove the password of USER for one mechanism. Its ACLs stay.

    A session that is open ends when it must log in again (connections.max.reauth.ms).
    """
    with open_admin(bootstrap_server, directory) as admin:
        admin.alter_user_scram_credentials([ScramDeletion(name, mechanism)])
    if as_json:
        echo_json({"user": name, "removed": mechanism})
    else:
        click.echo(f"user {name} does not log in by {mechanism} any more")
    return 0


def _password(file: str | None) -> str:
    """The password of a file's first line, of stdin, or as it is typed twice."""
    if file is None:
        if not sys.stdin.isatty():
            raise UsageError("no terminal to ask for the password: give --password-file FILE or -")
        typed = str(click.prompt("password", hide_input=True, confirmation_prompt=True, err=True))
        return _no_reference(typed, "the password")
    if file == STDIN:
        text = sys.stdin.readline()
    else:
        try:
            text = Path(file).expanduser().read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"--password-file {file}: {error}") from error
    found = text.splitlines()[0] if text.splitlines() else ""
    if not found:
        raise UsageError(f"--password-file {file}: its first line is empty")
    return _no_reference(found, f"--password-file {file}: the password")


def _no_reference(password: str, what: str) -> str:
    """Raises UsageError for one that no client of Headwater could send: it would resolve it."""
    if is_reference(password):
        kinds = ", ".join(REFERENCES)
        raise UsageError(
            f"{what} begins as a reference to one ({kinds}), which clients follow: choose another, "
            "or name the file that holds the password itself"
        )
    return password
