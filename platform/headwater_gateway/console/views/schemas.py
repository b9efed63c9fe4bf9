"""The schemas: subjects, versions, what changed between two, compatibility."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.errors import UsageError
from headwater_gateway.console.addresses import address
from headwater_gateway.console.fields import Fields
from headwater_gateway.console.listing import Column, listing
from headwater_gateway.console.plans import Change, Plan
from headwater_gateway.console.shell import Shell, is_part
from headwater_gateway.console.shown import counted
from headwater_gateway.console.views.schema_registry import Registry, difference, pretty
from headwater_gateway.registry.clients import SchemaRegistry

COLUMNS = (
    Column("subject", "Subject", lambda r: r.subject),
    Column("kind", "Type", lambda r: r.kind),
    Column("version", "Version", lambda r: r.version, is_number=True),
    Column("id", "Id", lambda r: r.schema_id, is_number=True),
)
LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
KINDS = ("AVRO", "JSON", "PROTOBUF")


def routes(shell: Shell, registry: SchemaRegistry) -> list[Route]:
    """The routes of this view."""
    pages = SchemaPages(shell, registry)
    return [
        shell.view("/schemas", pages.show_all),
        shell.view("/schema", pages.show),
        *([] if shell.read_only else [shell.view("/schema/new", pages.new)]),
        *shell.write("/schema/register", pages.register),
        *shell.write("/schema/level", pages.set_level),
        *shell.write("/schema/delete", pages.delete),
    ]


class SchemaPages:
    """The list and one subject."""

    def __init__(self, shell: Shell, registry: SchemaRegistry) -> None:
        self._shell = shell
        self._asked = registry

    def _registry(self, request: Request) -> Registry:
        if not self._shell.services.settings.schema_registry:
            raise UsageError("no schema registry is known here: start with --schema-registry")
        return Registry(self._asked, request.state.login)

    async def show_all(self, request: Request) -> Response:
        """All subjects."""
        if not self._shell.services.settings.schema_registry:
            return self._shell.page(request, "schemas_none.html")
        registry = self._registry(request)
        rows = await registry.latest()
        query = {k: request.query_params.get(k, "") for k in ("q", "sort")}
        found: Any = listing(
            ("schemas",),
            query,
            rows,
            COLUMNS,
            lambda r: f"{r.subject} {r.kind}",
            is_whole=is_part(request),
        )
        return self._shell.page(
            request, "schemas.html", list=found, level=await registry.level(), levels=LEVELS
        )

    async def show(self, request: Request) -> Response:
        """One subject: a version, and what it changed."""
        subject = request.query_params.get("subject", "")
        registry = self._registry(request)
        versions = await registry.versions(subject)
        chosen = Fields(request.query_params).number("version", default=versions[-1], least=1)
        row = await registry.version(subject, chosen)
        before = [v for v in versions if v < chosen]
        against = Fields(request.query_params).number(
            "against", default=before[-1] if before else 0
        )
        former = await registry.version(subject, against) if against else None
        return self._shell.page(
            request,
            "schema.html",
            row=row,
            versions=versions,
            former=former,
            lines=[] if former is None else difference(former, row),
            level=await registry.level(subject),
            levels=LEVELS,
        )

    async def new(self, request: Request) -> Response:
        """The form of a new version, or of a new subject."""
        subject = request.query_params.get("subject", "")
        kind, text = "AVRO", ""
        if subject:
            registry = self._registry(request)
            row = await registry.version(subject, (await registry.versions(subject))[-1])
            kind, text = row.kind, row.pretty
        return self._shell.page(
            request, "schema_new.html", subject=subject, kind=kind, text=text, kinds=KINDS
        )

    async def register(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Register a version. The plan says whether it is compatible."""
        given = Fields(fields)
        subject, text = given.text("subject"), given.text("schema")
        kind = given.one_of("kind", *KINDS)
        registry = self._registry(request)
        latest = [row for row in await registry.latest() if row.subject == subject]
        problems = await registry.check(subject, kind, text) if latest else []

        async def apply(_secrets: Mapping[str, str]) -> str:
            schema_id = await registry.register(subject, kind, text)
            return f"Subject {subject} has the schema of id {schema_id}."

        before = latest[0].pretty if latest else None
        what = f"version {latest[0].version + 1 if latest else 1} of {subject}"
        return Plan(
            f"Register a version of {subject}",
            (Change(what, before, pretty(kind, text), is_text=True),),
            [row.version for row in latest],
            apply,
            address("schema", subject=subject),
            warnings=tuple(f"Not compatible: {problem}" for problem in problems[:10]),
        )

    async def set_level(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Set the compatibility level of a subject, or the common one."""
        subject = request.query_params.get("subject", "")
        level = Fields(fields).one_of("level", *LEVELS)
        registry = self._registry(request)
        now = await registry.level(subject)
        whose = f"subject {subject}" if subject else "all subjects without their own"

        async def apply(_secrets: Mapping[str, str]) -> str:
            await registry.set_level(subject, level)
            return f"The compatibility of {whose} is {level}."

        return Plan(
            f"Set the compatibility of {whose}",
            (Change(f"compatibility of {whose}", now, level),) if now != level else (),
            now,
            apply,
            address("schema", subject=subject) if subject else address("schemas"),
        )

    async def delete(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Delete a subject, softly: the registry can still give its schemas by id."""
        subject = request.query_params.get("subject", "")
        registry = self._registry(request)
        versions = await registry.versions(subject)

        async def apply(_secrets: Mapping[str, str]) -> str:
            await registry.delete(subject)
            return f"Subject {subject} is deleted."

        return Plan(
            f"Delete subject {subject}",
            (Change(subject, counted(len(versions), "version"), None),),
            versions,
            apply,
            address("schemas"),
            warnings=("Its schemas stay readable by id; no version can be registered over it.",),
            is_dangerous=True,
        )
