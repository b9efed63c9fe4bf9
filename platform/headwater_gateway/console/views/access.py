"""Rights: ACLs, users with passwords, quotas."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.client.admin.scram import ScramDeletion, ScramUpsertion
from headwater.errors import ErrorCode, KafkaError, UsageError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.security.acl import (
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    PatternType,
    PermissionType,
)
from headwater_gateway.console.addresses import address
from headwater_gateway.console.fields import Fields
from headwater_gateway.console.listing import Column, listing
from headwater_gateway.console.plans import Change, Plan, Secret
from headwater_gateway.console.shell import Shell, is_part

RESOURCES = tuple(r.name for r in ResourceType if r > ResourceType.ANY)
OPERATIONS = tuple(o.name for o in Operation if o > Operation.ANY)
PATTERNS = (PatternType.LITERAL.name, PatternType.PREFIXED.name)
PERMISSIONS = (PermissionType.ALLOW.name, PermissionType.DENY.name)
MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256")
QUOTAS = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
ENTITIES = ("user", "client-id", "ip")
COLUMNS = (
    Column("principal", "Principal", lambda a: a.principal),
    Column("permission", "", lambda a: a.permission),
    Column("operation", "Operation", lambda a: a.operation.name),
    Column("resource", "Resource", lambda a: (a.resource_type, a.name)),
    Column("host", "From host", lambda a: a.host, is_wide_only=True),
)


def routes(shell: Shell) -> list[Route]:
    """The routes of this view."""
    pages = AccessPages(shell)
    return [
        shell.view("/access", pages.acls),
        shell.view("/access/users", pages.users),
        shell.view("/access/quotas", pages.quotas),
        *shell.write("/access/acls", pages.change_acl),
        *shell.write("/access/users", pages.change_user),
        *shell.write("/access/quotas", pages.change_quota),
    ]


class AccessPages:
    """The three lists, and what changes them."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def acls(self, request: Request) -> Response:
        """The ACLs."""
        problem, rows = "", []
        try:
            rows = await self._shell.clients(request).admin.describe_acls()
        except KafkaError as error:
            if error.code != ErrorCode.SECURITY_DISABLED:
                raise
            problem = "This cluster has no authorizer: everyone may do everything."
        query = {k: request.query_params.get(k, "") for k in ("q", "sort")}
        found: Any = listing(("access",), query, rows, COLUMNS, _words, is_whole=is_part(request))
        return self._shell.page(
            request,
            "access_acls.html",
            problem=problem,
            list=found,
            resources=RESOURCES,
            operations=OPERATIONS,
            patterns=PATTERNS,
            permissions=PERMISSIONS,
        )

    async def users(self, request: Request) -> Response:
        """The users with SCRAM passwords."""
        found = await self._shell.clients(request).admin.describe_user_scram_credentials()
        return self._shell.page(
            request, "access_users.html", users=sorted(found.items()), mechanisms=MECHANISMS
        )

    async def quotas(self, request: Request) -> Response:
        """The quotas."""
        found = await self._shell.clients(request).admin.describe_client_quotas()
        rows = sorted(found, key=lambda row: entity_text(row.entity))
        return self._shell.page(
            request,
            "access_quotas.html",
            rows=[(entity_text(r.entity), r) for r in rows],
            kinds=QUOTAS,
            entities=ENTITIES,
        )

    async def change_acl(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Add or delete one ACL."""
        given = Fields(fields)
        acl, admin = acl_of(given), self._shell.clients(request).admin
        is_there = acl in await admin.describe_acls()
        is_deletion = given.flag("delete")

        async def apply(_secrets: Mapping[str, str]) -> str:
            if is_deletion:
                await admin.delete_acls([AclFilter.exactly(acl)])
                return "The ACL is deleted."
            await admin.create_acls([acl])
            return "The ACL is added."

        text = acl_text(acl)
        change = Change(acl.principal, text if is_deletion else None, None if is_deletion else text)
        return Plan(
            "Delete an ACL" if is_deletion else "Add an ACL",
            (change,) if is_there == is_deletion else (),
            is_there,
            apply,
            address("access"),
            is_dangerous=is_deletion,
        )

    async def change_user(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Set or delete a user's password for one mechanism. The confirmation asks for it."""
        given = Fields(fields)
        user, mechanism = given.text("user"), given.one_of("mechanism", *MECHANISMS)
        is_deletion = given.flag("delete")
        admin = self._shell.clients(request).admin
        known = await admin.describe_user_scram_credentials([user])
        has = mechanism in known.get(user, {})
        if is_deletion and not has:
            raise UsageError(f"user {user!r} has no password for {mechanism}")

        async def apply(secrets: Mapping[str, str]) -> str:
            if is_deletion:
                await admin.alter_user_scram_credentials([ScramDeletion(user, mechanism)])
                return f"User {user} has no {mechanism} password any more."
            password = secrets["password"]
            await admin.alter_user_scram_credentials([ScramUpsertion(user, password, mechanism)])
            return f"The password of user {user} is set."

        change = Change(
            f"user {user}, {mechanism}",
            "a password" if has else None,
            None if is_deletion else "the password that you type below",
        )
        return Plan(
            f"{'Delete' if is_deletion else 'Set'} the password of {user}",
            (change,),
            known.get(user, {}),
            apply,
            address("access", "users"),
            secrets=() if is_deletion else (Secret("password", "New password"),),
            is_dangerous=is_deletion,
        )

    async def change_quota(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Set or remove one quota."""
        given = Fields(fields)
        entity = _entity(given)
        kind, is_deletion = given.one_of("quota", *QUOTAS), given.flag("delete")
        value = None if is_deletion else given.rate("value")
        admin = self._shell.clients(request).admin
        now = {
            name: number
            for row in await admin.describe_client_quotas()
            if row.entity == entity
            for name, number in row.quotas.items()
        }

        async def apply(_secrets: Mapping[str, str]) -> str:
            await admin.alter_client_quotas(entity, {kind: value})
            return f"{kind} of {entity_text(entity)} is {'removed' if value is None else 'set'}."

        change = Change(f"{kind} of {entity_text(entity)}", _text(now.get(kind)), _text(value))
        return Plan(
            f"{'Remove' if is_deletion else 'Set'} {kind} of {entity_text(entity)}",
            (change,) if now.get(kind) != value else (),
            now,
            apply,
            address("access", "quotas"),
            is_dangerous=is_deletion,
        )


def acl_of(given: Fields) -> AclBinding:
    """The ACL that a form names. Raises UsageError."""
    resource = ResourceType[given.one_of("resource", *RESOURCES)]
    principal = given.text("principal")
    if ":" not in principal:
        principal = f"User:{principal}"
    name = CLUSTER_NAME if resource is ResourceType.CLUSTER else given.text("name")
    return AclBinding(
        resource,
        name,
        PatternType[given.one_of("pattern", *PATTERNS)],
        principal,
        given.optional("host") or "*",
        Operation[given.one_of("operation", *OPERATIONS)],
        PermissionType[given.one_of("permission", *PERMISSIONS)],
    )


def acl_text(acl: AclBinding) -> str:
    """An ACL in words."""
    prefix = "prefixed " if acl.pattern_type is PatternType.PREFIXED else ""
    where = "" if acl.host == "*" else f" from {acl.host}"
    kind = acl.resource_type.name.lower().replace("_", " ")
    verb = acl.permission.name.lower()
    return f"{verb} {acl.operation.name} on {prefix}{kind} {acl.name}{where}"


def entity_text(entity: Mapping[str, str | None]) -> str:
    """A quota's entity in words."""
    rows = sorted(entity.items(), key=lambda row: ENTITIES.index(row[0]))
    return ", ".join(f"{k} {'(default)' if v is None else v}" for k, v in rows)


def _entity(given: Fields) -> dict[str, str | None]:
    """Names of the form's entities: `*` is the default one."""
    found: dict[str, str | None] = {}
    for kind in ENTITIES:
        name = given.optional(kind)
        if name is not None:
            found[kind] = None if name == "*" else name
    if not found:
        raise UsageError("whose quota? Give a user, a client id or an ip; * is the default")
    return found


def _text(number: float | None) -> str | None:
    return None if number is None else f"{number:g}"


def _words(acl: AclBinding) -> str:
    return f"{acl.principal} {acl_text(acl)} {acl.host}"
