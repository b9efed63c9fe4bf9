"""Configs of brokers and topics: what is set, where, and what it would be otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.client.admin.verbs import ResourceType
from headwater.client.values import ConfigEntry
from headwater.errors import UsageError
from headwater_gateway.console.addresses import address
from headwater_gateway.console.fields import Fields
from headwater_gateway.console.listing import Column, listing
from headwater_gateway.console.plans import Change, Plan
from headwater_gateway.console.shell import Shell, is_part

COLUMNS = (
    Column("name", "Config", lambda r: r.name),
    Column("value", "Value", lambda r: r.value or ""),
    Column("source", "Set by", lambda r: (r.is_default, r.source)),
)
SET_ONLY = "set"
HIDDEN = "(hidden)"
ALL_BROKERS = "all"
"""The brokers' common dynamic configs (KIP-226)."""


def routes(shell: Shell) -> list[Route]:
    """The routes of this view."""
    pages = ConfigPages(shell)
    return [
        shell.view("/configs", pages.choose),
        shell.view("/topics/{topic}/configs", pages.topic),
        shell.view("/brokers/{broker}/configs", pages.broker),
        *shell.write("/topics/{topic}/configs", pages.plan_topic),
        *shell.write("/brokers/{broker}/configs", pages.plan_broker),
    ]


class ConfigPages:
    """The configs of one resource."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def choose(self, request: Request) -> Response:
        """Whose configs?"""
        admin = self._shell.clients(request).admin
        cluster, topics = await asyncio.gather(admin.describe_cluster(), admin.list_topics())
        return self._shell.page(request, "configs.html", cluster=cluster, topics=topics)

    async def topic(self, request: Request) -> Response:
        """Of a topic."""
        name = request.path_params["topic"]
        return await self._show(request, "topic", name, ("topics", name, "configs"))

    async def broker(self, request: Request) -> Response:
        """Of a broker."""
        name = _broker_name(request)
        parts = ("brokers", request.path_params["broker"], "configs")
        return await self._show(request, "broker", name, parts)

    async def _show(
        self, request: Request, kind: ResourceType, name: str, parts: tuple[object, ...]
    ) -> Response:
        admin = self._shell.clients(request).admin
        found = await admin.describe_configs(kind, name, patient=False)
        query = {k: request.query_params.get(k, "") for k in ("q", "sort", SET_ONLY)}
        rows = [e for e in found.values() if not query[SET_ONLY] or not e.is_default]
        return self._shell.page(
            request,
            "config_list.html",
            kind=kind,
            name=name,
            parts_of_address=parts,
            list=listing(parts, query, rows, COLUMNS, _words, is_whole=is_part(request)),
            edited=found.get(request.query_params.get("edit", "")),
            set_count=sum(not e.is_default for e in found.values()),
            is_set_only=bool(query[SET_ONLY]),
        )

    async def plan_topic(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Set or reset a config of a topic."""
        name = request.path_params["topic"]
        return await self._plan(request, fields, "topic", name, address("topics", name, "configs"))

    async def plan_broker(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Set or reset a config of a broker, or of all."""
        back = address("brokers", request.path_params["broker"], "configs")
        return await self._plan(request, fields, "broker", _broker_name(request), back)

    async def _plan(
        self, request: Request, fields: Mapping[str, str], kind: ResourceType, name: str, back: str
    ) -> Plan:
        given = Fields(fields)
        key = given.text("key")
        value = None if given.flag("reset") else fields.get("value", "")
        admin = self._shell.clients(request).admin
        now: ConfigEntry | None = (await admin.describe_configs(kind, name)).get(key)
        if now is not None and now.read_only:
            raise UsageError(f"{key} cannot change while the broker runs: set it in its properties")
        await admin.alter_configs(kind, name, {key: value}, validate_only=True)
        whose = f"{kind} {name}" if name else "all brokers"

        async def apply(_secrets: Mapping[str, str]) -> str:
            await admin.alter_configs(kind, name, {key: value})
            return f"{key} of {whose} is {'reset' if value is None else 'set'}."

        verb = "Reset" if value is None else "Set"
        return Plan(
            f"{verb} {key} of {whose}",
            _change(key, now, value),
            None if now is None else [now.value, now.source],
            apply,
            back,
        )


def _change(key: str, now: ConfigEntry | None, value: str | None) -> tuple[Change, ...]:
    is_hidden = now is not None and now.is_sensitive
    before = None if now is None else HIDDEN if is_hidden else now.value
    after = HIDDEN if is_hidden and value is not None else value
    if value is None and now is not None:
        after = f"{now.default} (default)" if now.default is not None else "its default"
    is_same = now is not None and not is_hidden and not now.is_default and value == now.value
    return () if is_same else (Change(key, before, after),)


def _broker_name(request: Request) -> str:
    text = str(request.path_params["broker"])
    if text == ALL_BROKERS:
        return ""
    if not (text.isascii() and text.isdigit()) or len(text) > 10:
        raise UsageError(f"{text[:40]!r} is no broker: give its id, or {ALL_BROKERS}")
    return text


def _words(entry: Any) -> str:
    return f"{entry.name} {entry.value or ''} {entry.documentation or ''}"
