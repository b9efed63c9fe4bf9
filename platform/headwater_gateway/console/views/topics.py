"""The topics: a list to filter and sort, and the form of a new one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.client.admin.client import EARLIEST, LATEST
from headwater.client.values import NewTopic, TopicDescription, TopicPartition
from headwater.errors import UsageError
from headwater_gateway.console.addresses import address
from headwater_gateway.console.fields import Fields
from headwater_gateway.console.lag.throttles import sizes_of
from headwater_gateway.console.listing import Column, listing
from headwater_gateway.console.plans import Change, Plan
from headwater_gateway.console.shell import Shell, is_part

INTERNAL = "internal"


class Volumes(NamedTuple):
    """How much is in each topic."""

    records: dict[str, int]
    bytes: dict[str, int]


class Row(NamedTuple):
    """A topic in the list."""

    name: str
    is_internal: bool
    partitions: int
    replication: int
    leaderless: int
    under_replicated: int
    records: int | None
    bytes: int | None

    @property
    def health(self) -> int:
        """How ill it is: partitions without leader count most."""
        return self.leaderless * 1_000_000 + self.under_replicated


COLUMNS = (
    Column("name", "Topic", lambda r: r.name),
    Column("health", "Health", lambda r: r.health),
    Column("partitions", "Partitions", lambda r: r.partitions, is_number=True),
    Column("replication", "Replicas", lambda r: r.replication, is_number=True, is_wide_only=True),
    Column("records", "Records", lambda r: r.records, is_number=True),
    Column("size", "Size", lambda r: r.bytes, is_number=True, is_wide_only=True),
)


def routes(shell: Shell) -> list[Route]:
    """The routes of this view."""

    async def show(request: Request) -> Response:
        admin = shell.clients(request).admin
        # Asked for at once; the list does not wait long for the volumes.
        described, volumes = await asyncio.gather(
            admin.describe_topics(),
            shell.snapshots.get((request.state.login, "volumes"), lambda: _volumes(admin)),
        )
        is_all = request.query_params.get(INTERNAL) == "1"
        rows = [row(t, volumes) for t in described.values() if is_all or not t.is_internal]
        query = {k: request.query_params.get(k, "") for k in ("q", "sort", INTERNAL)}
        found = listing(
            ("topics",), query, rows, COLUMNS, lambda r: r.name, is_whole=is_part(request)
        )
        hidden = sum(t.is_internal for t in described.values())
        return shell.page(request, "topics.html", list=found, is_all=is_all, internal=hidden)

    async def new(request: Request) -> Response:
        return shell.page(request, "topic_new.html")

    async def plan(request: Request, fields: Mapping[str, str]) -> Plan:
        return await plan_creation(shell.clients(request).admin, Fields(fields))

    return [
        shell.view("/topics", show),
        *([] if shell.read_only else [shell.view("/topic-new", new)]),
        *shell.write("/topic-new", plan),
    ]


def row(topic: TopicDescription, volumes: Volumes | None) -> Row:
    """A topic's row."""
    parts = topic.partitions
    return Row(
        topic.name,
        topic.is_internal,
        len(parts),
        max((len(p.replicas) for p in parts), default=0),
        sum(p.leader < 0 for p in parts),
        sum(len(p.isr) < len(p.replicas) for p in parts),
        None if volumes is None else volumes.records.get(topic.name),
        None if volumes is None else volumes.bytes.get(topic.name),
    )


async def _volumes(admin: Any) -> Volumes:
    topics = await admin.describe_topics()
    led = [
        TopicPartition(t.name, p.partition)
        for t in topics.values()
        for p in t.partitions
        if p.leader >= 0
    ]
    starts, ends, log_dirs = await asyncio.gather(
        admin.list_offsets(dict.fromkeys(led, EARLIEST)),
        admin.list_offsets(dict.fromkeys(led, LATEST)),
        admin.describe_log_dirs(),
    )
    records: dict[str, int] = {}
    for tp in led:
        count = ends[tp].offset - starts[tp].offset
        records[tp.topic] = records.get(tp.topic, 0) + count
    sizes: dict[str, int] = {}
    for tp, size in sizes_of(log_dirs).items():
        sizes[tp.topic] = sizes.get(tp.topic, 0) + size
    return Volumes(records, sizes)


async def plan_creation(admin: Any, fields: Fields) -> Plan:
    """Create a topic."""
    name = fields.text("name")
    partitions = fields.number("partitions", default=-1, least=1)
    replication = fields.number("replication", default=-1, least=1)
    configs = fields.settings("configs")
    if name in await admin.describe_topics():
        raise UsageError(f"topic {name!r} exists already: choose another name")
    topic = NewTopic(name, partitions, replication, configs)
    await admin.create_topics([topic], validate_only=True)

    async def apply(_secrets: Mapping[str, str]) -> str:
        await admin.create_topics([topic])
        return f"Topic {name} is created."

    changes = [
        Change("topic", None, name),
        Change("partitions", None, _or_default(partitions)),
        Change("replicas", None, _or_default(replication)),
        *(Change(key, None, value) for key, value in configs.items()),
    ]
    return Plan(
        f"Create topic {name}", tuple(changes), ["absent", name], apply, address("topics", name)
    )


def _or_default(number: int) -> str:
    return "the brokers' default" if number == -1 else str(number)
