"""`headwater acls`: who may do what, with the options of kafka-acls.sh."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from headwater.cli.acl_arguments import (
    NEW_PATTERN_TYPES,
    PATTERN_TYPES,
    Entries,
    Resources,
    bindings,
    consumer_bindings,
    filters,
    operation_name,
    producer_bindings,
)
from headwater.cli.console_tables import console, table
from headwater.cli.options import bootstrap_options, echo_json, json_option, open_admin
from headwater.errors import UsageError
from headwater.security.acl import AclBinding, AclFilter


@click.group()
def acls() -> None:
    """Show and change ACLs: who may do what with which resource.

    A DENY beats every ALLOW. Without an ACL for it, an operation is denied, unless the user is one
    of super.users.
    """


def _many(name: str, parameter: str, what: str) -> Callable[[Any], Any]:
    return click.option(name, parameter, multiple=True, metavar="NAME", help=what)


def resource_options(
    pattern_types: tuple[str, ...], default: str
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """The options that name resources; the command gets them as `Resources`."""

    def with_options(function: Callable[..., int]) -> Callable[..., int]:
        @wraps(function)
        def command(pattern_type: str, **given: Any) -> int:
            names = Resources.__dataclass_fields__.keys() & given.keys()
            chosen = {name: given.pop(name) for name in names}
            resources = Resources(**chosen, pattern_type=PATTERN_TYPES[pattern_type])
            return function(resources, **given)

        made: Callable[..., int] = command
        for option in (
            click.option("--resource-pattern-type", "pattern_type", default=default,
                         type=click.Choice(pattern_types, case_sensitive=False),
                         show_default=True,
                         help="How names are meant; `*` as a literal name: every resource."),
            _many("--user-principal", "user_principals", "A user, for rights on its tokens."),
            _many("--delegation-token", "delegation_tokens", "A delegation token's id."),
            _many("--transactional-id", "transactional_ids", "A transactional id."),
            click.option("--cluster", is_flag=True, help="The cluster itself."),
            _many("--group", "groups", "A consumer group."),
            _many("--topic", "topics", "A topic."),
        ):  # fmt: skip
            made = option(made)
        return made

    return with_options


def entry_options(function: Callable[..., int]) -> Callable[..., int]:
    """The options that say who is allowed or denied what; the command gets the ACLs they make."""

    @wraps(function)
    def command(
        resources: Resources, *, producer: bool, consumer: bool, idempotent: bool, **given: Any
    ) -> int:
        names = Entries.__dataclass_fields__.keys() & given.keys()
        entries = Entries(**{name: given.pop(name) for name in names})
        if idempotent and not producer:
            raise UsageError("--idempotent goes with --producer")
        found: list[AclBinding] = []
        if producer:
            found += producer_bindings(resources, entries, idempotent=idempotent)
        if consumer:
            found += consumer_bindings(resources, entries)
        if not producer and not consumer:
            found = bindings(resources, entries)
        return function(list(dict.fromkeys(found)), **given)

    made: Callable[..., int] = command
    for option in (
        click.option("--idempotent", is_flag=True,
                     help="With --producer: idempotence, for brokers before 2.8."),
        click.option("--consumer", is_flag=True,
                     help="What a consumer needs of its --topic and --group."),
        click.option("--producer", is_flag=True,
                     help="What a producer needs of its --topic, and --transactional-id."),
        _many("--operation", "operations", "Read, Write, DescribeConfigs, ... [default: All]"),
        _many("--deny-host", "deny_hosts", "IP address for --deny-principal. [default: *]"),
        _many("--allow-host", "allow_hosts", "IP address for --allow-principal. [default: *]"),
        _many("--deny-principal", "denied", "User:alice, or User:*."),
        _many("--allow-principal", "allowed", "User:alice, or User:*."),
    ):  # fmt: skip
        made = option(made)
    return made


dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would change, and change nothing."
)


@acls.command("list")
@resource_options(tuple(PATTERN_TYPES), "any")
@click.option("--principal", "principals", multiple=True, metavar="NAME",
              help="Only ACLs of User:alice. May be repeated.")  # fmt: skip
@bootstrap_options
@json_option
def list_acls(
    resources: Resources,
    principals: tuple[str, ...],
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Show ACLs: all, or those of the named resources and principals.

    With --resource-pattern-type match: those that decide about this name, prefixes and `*` too.
    """
    wanted = filters(resources, principals)
    with open_admin(bootstrap_server, directory) as admin:
        found = {acl for one in wanted for acl in admin.describe_acls(one)}
    _show(sorted(found), as_json=as_json)
    return 0


@acls.command("add")
@resource_options(NEW_PATTERN_TYPES, "literal")
@entry_options
@dry_run_option
@bootstrap_options
@json_option
def add(
    wanted: list[AclBinding],
    dry_run: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Add ACLs. Those that exist already stay.

    \b
    headwater acls add --allow-principal User:alice --operation Read --topic flights
    headwater acls add --allow-principal User:app --producer --topic flights
    headwater acls add --deny-principal User:bob --deny-host 10.0.0.7 --topic flights
    headwater acls add --allow-principal User:app --consumer --topic air --group g \\
        --resource-pattern-type prefixed
    """
    if not dry_run:
        with open_admin(bootstrap_server, directory) as admin:
            admin.create_acls(wanted)
    _show(wanted, as_json=as_json)
    return 0


@acls.command("remove")
@resource_options(NEW_PATTERN_TYPES, "literal")
@entry_options
@dry_run_option
@bootstrap_options
@json_option
def remove(
    wanted: list[AclBinding],
    dry_run: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Remove exactly the ACLs that `add` with the same options would add; shows what it removed.

    For all ACLs of a resource or a principal use `headwater acls clear`.
    """
    return _delete([AclFilter.exactly(acl) for acl in wanted], dry_run, bootstrap_server, directory,
                   as_json=as_json)  # fmt: skip


@acls.command("clear")
@resource_options((*NEW_PATTERN_TYPES, "any"), "literal")
@click.option("--principal", "principals", multiple=True, metavar="NAME",
              help="Only ACLs of User:alice. May be repeated.")  # fmt: skip
@dry_run_option
@bootstrap_options
@json_option
def clear(
    resources: Resources,
    principals: tuple[str, ...],
    dry_run: bool,
    bootstrap_server: str | None,
    directory: str,
    as_json: bool,
) -> int:
    """Remove every ACL of the named resources, or of principals; shows what it removed."""
    if not principals and not list(resources.named()):
        raise UsageError("which ACLs? Name a resource, as --topic flights, or a --principal")
    wanted = filters(resources, principals)
    return _delete(wanted, dry_run, bootstrap_server, directory, as_json=as_json)


def _delete(
    wanted: list[AclFilter],
    dry_run: bool,
    bootstrap_server: str | None,
    directory: str,
    *,
    as_json: bool,
) -> int:
    with open_admin(bootstrap_server, directory) as admin:
        if dry_run:
            found = {acl for one in wanted for acl in admin.describe_acls(one)}
        else:
            found = set(admin.delete_acls(wanted))
    _show(sorted(found), as_json=as_json)
    return 0


def _show(rows: list[AclBinding], *, as_json: bool) -> None:
    if as_json:
        echo_json([_document(acl) for acl in rows])
    elif not rows:
        click.echo("no ACL")
    else:
        made = table(None, "resource, name, pattern, principal, host, operation, permission")
        for acl in rows:
            made.add_row(*_document(acl).values())
        console().print(made)


def _document(acl: AclBinding) -> dict[str, str]:
    return {
        "resource_type": acl.resource_type.name.lower(),
        "name": acl.name,
        "pattern_type": acl.pattern_type.name.lower(),
        "principal": acl.principal,
        "host": acl.host,
        "operation": operation_name(acl.operation),
        "permission": acl.permission.name.lower(),
    }
