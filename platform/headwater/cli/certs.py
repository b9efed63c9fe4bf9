"""`headwater certs`: the certificate authority of a cluster's folder, and what it has signed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any

import click

from headwater.cli.console_tables import console, table
from headwater.cli.options import dir_option, echo_json, json_option, up_command
from headwater.errors import UsageError
from headwater.local import cluster_file
from headwater.local.daemon import cluster_folder
from headwater.local.security_folder import (
    AUTHORITY,
    NEXT_AUTHORITY,
    TRUSTED,
    RotationStep,
    SecurityFolder,
)
from headwater.security.certificates import CertificateFacts
from headwater.system import SystemClock

Pause = Callable[[float], None]
"""Waits for so many seconds; tests pass another as click's object."""
RELOADED = "Go on when all brokers and clients have the new files; until then both work."
RESERVED = frozenset(name.removesuffix(".pem") for name in (AUTHORITY, NEXT_AUTHORITY, TRUSTED))


@click.group()
def certs() -> None:
    """Make, show, renew and replace the certificates of a cluster's folder.

    They are in D/security, readable by their owner only: ca.pem is the brokers' and clients'
    ssl.truststore.location, NAME.pem the ssl.keystore.location of NAME.
    """


def of_folder(function: Callable[..., int]) -> Callable[..., int]:
    """The options of all commands; the command gets the SecurityFolder and the cluster's id."""

    @wraps(function)
    def command(directory: str, **more: Any) -> int:
        path = cluster_folder(directory)
        cluster = cluster_file.load(path)
        if cluster is None:
            raise UsageError(f"{directory} holds no cluster: make one with {up_command(directory)}")
        return function(SecurityFolder(path, SystemClock()), cluster, **more)

    return dir_option(json_option(command))


@certs.command("create")
@click.argument("name", required=False)
@click.option("--host", "hosts", multiple=True, metavar="HOST",
              help="A host name or IP address of NAME. May be repeated.")  # fmt: skip
@of_folder
def create(
    folder: SecurityFolder,
    cluster: cluster_file.ClusterFile,
    name: str | None,
    hosts: tuple[str, ...],
    as_json: bool,
) -> int:
    """Make the certificate of NAME, or without NAME those of all brokers.

    What exists already stays. The authority is made when there is none.
    """
    if name is None and hosts:
        raise UsageError("--host goes with a NAME: brokers have the cluster's host and localhost")
    if name is not None:
        _check_name(name)
        leaves = {name: hosts}
    else:
        slots = cluster.spec(folder.path.parent).slots
        leaves = {slot.name: (slot.host, "localhost") for slot in slots}
    made = folder.create(cluster.cluster_id, leaves)
    _echo_files(folder, made, "made", as_json=as_json)
    return 0


@certs.command("list")
@of_folder
def list_certificates(
    folder: SecurityFolder, _cluster: cluster_file.ClusterFile, as_json: bool
) -> int:
    """Show every certificate: subject, hosts, when it ends and when it is due for renewal."""
    _check_exists(folder)
    authorities, leaves = folder.authorities(), folder.leaves()
    if as_json:
        echo_json(
            {
                "rotation": folder.step().value,
                "authorities": [_document(facts) for facts in authorities],
                "certificates": {name: _document(facts) for name, facts in leaves.items()},
            }
        )
        return 0
    made = table(None, "name, subject, hosts, ends, renew from")
    for facts in authorities:
        made.add_row("(authority)", facts.subject, "", _day(facts.not_after_ms), "")
    for name, facts in leaves.items():
        days = _day(facts.not_after_ms), _day(facts.renewal_ms)
        made.add_row(name, facts.subject, ", ".join(facts.hosts), *days)
    console().print(made)
    return 0


@certs.command("renew")
@of_folder
def renew(folder: SecurityFolder, _cluster: cluster_file.ClusterFile, as_json: bool) -> int:
    """Renew the certificates of which two thirds of the lifetime have passed."""
    _check_exists(folder)
    if folder.step() is RotationStep.BOTH_TRUSTED:
        raise UsageError("the authority is being replaced: go on with `headwater certs rotate`")
    _echo_files(folder, folder.renew_due(), "renewed", as_json=as_json)
    return 0


@certs.command("rotate")
@click.option("--all", "everything", is_flag=True,
              help="Take all steps, 15 s apart. For clients on this machine only.")  # fmt: skip
@of_folder
def rotate(
    folder: SecurityFolder, cluster: cluster_file.ClusterFile, everything: bool, as_json: bool
) -> int:
    """Take the next of three steps to a new authority.

    \b
    1  a new authority is trusted beside the present one
    2  every certificate is signed by the new one
    3  the former authority is trusted no longer

    Between two steps brokers and clients must read the changed files: ca.pem after the first and
    the third, NAME.pem after the second. Brokers do so within 15 s; until then the next step is
    refused. Clients on other machines need the new ca.pem before the second step.
    """
    _check_exists(folder)
    pause: Pause = click.get_current_context().obj or time.sleep
    while True:
        left_s = 0.0 if folder.step() is RotationStep.NONE else folder.unread_s()
        if left_s > 0 and not everything:
            raise UsageError(
                "brokers may not have read the files of the last step yet: run this again in"
                f" {math.ceil(left_s)} s"
            )
        if left_s > 0:
            pause(left_s)
        done = _next_step(folder, cluster.cluster_id)
        if not as_json:
            click.echo(done)
        if not everything or folder.step() is RotationStep.NONE:
            break
    if as_json:
        echo_json({"rotation": folder.step().value})
    return 0


def _next_step(folder: SecurityFolder, cluster_id: str) -> str:
    """Take the next step of a rotation; what was done."""
    step = folder.step()
    if step is RotationStep.NONE:
        folder.trust_next(cluster_id)
        return f"step 1 of 3: {folder.trusted_path} trusts a new authority too. {RELOADED}"
    if step is RotationStep.BOTH_TRUSTED:
        names = ", ".join(folder.reissue())
        return f"step 2 of 3: the new authority has signed {names}. {RELOADED}"
    folder.drop_former()
    return f"step 3 of 3: {folder.trusted_path} trusts only the new authority."


def _check_exists(folder: SecurityFolder) -> None:
    if not folder.exists():
        raise UsageError(f"{folder.path} has no authority: make one with `headwater certs create`")


def _check_name(name: str) -> None:
    is_plain = name.replace("-", "").replace("_", "").replace(".", "").isalnum()
    if not is_plain or not name.isascii() or name.startswith(".") or name in RESERVED:
        raise UsageError(
            f"{name!r} cannot be a certificate's name: use letters, digits, '-', '_' and '.', and"
            f" none of {', '.join(sorted(RESERVED))}"
        )


def _echo_files(folder: SecurityFolder, names: list[str], what: str, *, as_json: bool) -> None:
    files = [str(folder.leaf_path(name)) for name in names]
    if as_json:
        echo_json({what: files})
        return
    for file in files:
        click.echo(f"{what} {file}")
    if not files:
        click.echo(f"nothing to be {what}")


def _document(facts: CertificateFacts) -> dict[str, Any]:
    return {
        "subject": facts.subject,
        "issuer": facts.issuer,
        "serial": f"{facts.serial:x}",
        "hosts": list(facts.hosts),
        "not_before": _time(facts.not_before_ms).isoformat(),
        "not_after": _time(facts.not_after_ms).isoformat(),
        "renew_from": _time(facts.renewal_ms).isoformat(),
        "sha256": facts.sha256,
    }


def _time(ms: int) -> datetime:
    return datetime.fromtimestamp(ms // 1_000, UTC)


def _day(ms: int) -> str:
    return _time(ms).date().isoformat()
