"""The brokers with what they hold, and the partitions that move between them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.client.values import (
    Broker,
    LogDirDescription,
    PartitionReassignment,
    TopicDescription,
    TopicPartition,
)
from headwater.errors import UsageError
from headwater_gateway.console.addresses import address
from headwater_gateway.console.fields import Fields
from headwater_gateway.console.listing import Column, listing
from headwater_gateway.console.plans import Change, Plan
from headwater_gateway.console.shell import Shell, is_part
from headwater_gateway.console.views.broker_status import live_statuses
from headwater_gateway.console.views.topic_writes import raise_first

LogDirs = Mapping[int, list[LogDirDescription]]


class Row(NamedTuple):
    """A broker in the list."""

    broker: Broker
    is_controller: bool
    leaders: int
    replicas: int
    behind: int
    """Replicas that are not in sync."""
    bytes: int | None
    usable: int | None
    offline: list[str]
    """Log dirs that are."""


class ReplicaRow(NamedTuple):
    """A replica that a broker holds."""

    partition: TopicPartition
    path: str
    size: int
    lag: int
    is_future: bool
    is_leader: bool

    @property
    def name(self) -> str:
        """As Kafka writes it."""
        return f"{self.partition.topic}-{self.partition.partition}"


class Move(NamedTuple):
    """A reassignment in progress."""

    partition: TopicPartition
    it: PartitionReassignment
    done: float | None
    """How much of its data the slowest new replica has, 0 to 1."""


REPLICA_COLUMNS = (
    Column("size", "Size", lambda r: r.size, is_number=True),
    Column("name", "Partition", lambda r: r.partition),
    Column("lag", "Lag", lambda r: r.lag, is_number=True),
    Column("dir", "Log dir", lambda r: r.path, is_wide_only=True),
)


def routes(shell: Shell) -> list[Route]:
    """The routes of these views."""
    pages = BrokerPages(shell)
    return [
        shell.view("/brokers", pages.show_all),
        shell.view("/brokers/{broker}", pages.show),
        shell.view("/moves", pages.moves),
        *shell.write("/moves/cancel", pages.cancel),
    ]


class BrokerPages:
    """The pages."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def _log_dirs(self, request: Request) -> LogDirs | None:
        admin = self._shell.clients(request).admin
        key = (request.state.login, "log dirs")
        found: LogDirs | None = await self._shell.snapshots.get(key, admin.describe_log_dirs)
        return found

    async def show_all(self, request: Request) -> Response:
        """All brokers."""
        admin = self._shell.clients(request).admin
        cluster, topics, log_dirs = await asyncio.gather(
            admin.describe_cluster(), admin.describe_topics(), self._log_dirs(request)
        )
        rows = [_row(b, cluster.controller_id, topics, log_dirs) for b in cluster.brokers]
        live = await live_statuses(self._shell, request, cluster.brokers)
        return self._shell.page(request, "brokers.html", rows=rows, cluster=cluster, live=live)

    async def show(self, request: Request) -> Response:
        """One broker."""
        text = request.path_params["broker"]
        admin = self._shell.clients(request).admin
        cluster, topics, log_dirs = await asyncio.gather(
            admin.describe_cluster(), admin.describe_topics(), self._log_dirs(request)
        )
        found = [b for b in cluster.brokers if str(b.node_id) == text]
        if not found:
            raise UsageError(f"no live broker has the id {text[:40]!r}")
        row = _row(found[0], cluster.controller_id, topics, log_dirs)
        dirs = (log_dirs or {}).get(row.broker.node_id, [])
        led = {
            TopicPartition(t.name, p.partition)
            for t in topics.values()
            for p in t.partitions
            if p.leader == row.broker.node_id
        }
        replicas = [
            ReplicaRow(tp, d.path, r.size, r.offset_lag, r.is_future, tp in led)
            for d in dirs
            for tp, r in d.replicas.items()
        ]
        query = {"q": request.query_params.get("q", "")}
        query["sort"] = request.query_params.get("sort", "-size")
        rows: Any = listing(
            ("brokers", text),
            query,
            replicas,
            REPLICA_COLUMNS,
            lambda r: r.name,
            is_whole=is_part(request),
        )
        live = await live_statuses(self._shell, request, cluster.brokers)
        return self._shell.page(
            request,
            "broker.html",
            row=row,
            dirs=dirs,
            list=rows,
            live=live.get(row.broker.node_id),
            now_ms=self._shell.services.clock.now_ms(),
        )

    async def moves(self, request: Request) -> Response:
        """Partitions that move."""
        admin = self._shell.clients(request).admin
        moving, log_dirs = await asyncio.gather(
            admin.list_partition_reassignments(), self._log_dirs(request)
        )
        rows = [Move(tp, it, _done(tp, it, log_dirs)) for tp, it in sorted(moving.items())]
        return self._shell.page(request, "moves.html", rows=rows)

    async def cancel(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Cancel a move: the former replicas stay."""
        given = Fields(fields)
        tp = TopicPartition(given.text("topic"), given.number("partition"))
        admin = self._shell.clients(request).admin
        moving = await admin.list_partition_reassignments([tp])
        if tp not in moving:
            raise UsageError(f"{tp.topic}-{tp.partition} does not move any more")
        it: PartitionReassignment = moving[tp]

        async def apply(_secrets: Mapping[str, str]) -> str:
            raise_first(await admin.alter_partition_reassignments({tp: None}))
            return f"The move of {tp.topic}-{tp.partition} is cancelled."

        change = Change(
            f"{tp.topic}-{tp.partition}",
            f"adding {_ids(it.adding_replicas)}, removing {_ids(it.removing_replicas)}",
            f"stays on {_ids(r for r in it.replicas if r not in it.adding_replicas)}",
        )
        return Plan(
            f"Cancel the move of {tp.topic}-{tp.partition}",
            (change,),
            list(it),
            apply,
            address("moves"),
        )


def _row(
    broker: Broker,
    controller: int,
    topics: Mapping[str, TopicDescription],
    log_dirs: LogDirs | None,
) -> Row:
    node = broker.node_id
    partitions = [p for t in topics.values() for p in t.partitions]
    held = [p for p in partitions if node in p.replicas]
    dirs = None if log_dirs is None else log_dirs.get(node)
    usable = [d.usable_bytes for d in dirs or [] if d.usable_bytes >= 0]
    return Row(
        broker,
        node == controller,
        sum(p.leader == node for p in partitions),
        len(held),
        sum(node not in p.isr for p in held),
        None if dirs is None else sum(r.size for d in dirs for r in d.replicas.values()),
        min(usable, default=None),
        [d.path for d in dirs or [] if d.error],
    )


def _done(tp: TopicPartition, it: PartitionReassignment, log_dirs: LogDirs | None) -> float | None:
    if log_dirs is None or not it.adding_replicas:
        return None
    sizes = {
        node: replica.size
        for node, dirs in log_dirs.items()
        for d in dirs
        for held, replica in d.replicas.items()
        if held == tp and not replica.is_future
    }
    whole = max((sizes.get(n, 0) for n in it.replicas), default=0)
    new = min(sizes.get(node, 0) for node in it.adding_replicas)
    return min(1.0, new / whole) if whole else None


def _ids(brokers: Any) -> str:
    return ", ".join(map(str, brokers)) or "none"
