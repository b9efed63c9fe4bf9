"""Transactions: what holds the last stable offset, and every transactional id."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.client.transaction_values import TransactionBlocker, TransactionListing
from headwater.client.values import TopicPartition
from headwater.errors import UsageError
from headwater_gateway.console.addresses import address
from headwater_gateway.console.fields import Fields
from headwater_gateway.console.lag.sampler import BRIEF_WAIT_S
from headwater_gateway.console.listing import Column, listing
from headwater_gateway.console.plans import Change, Plan
from headwater_gateway.console.shell import Shell, is_part

COLUMNS = (
    Column("id", "Transactional id", lambda r: r.transactional_id),
    Column("state", "State", lambda r: r.state),
    Column("producer", "Producer id", lambda r: r.producer_id, is_number=True),
    Column("coordinator", "Coordinator", lambda r: r.coordinator, is_number=True),
)
BLOCKERS_WAIT_S = 2.0
ONGOING = "Ongoing"
"""The state in which a transaction's end is not decided."""


class Held(NamedTuple):
    """A blocker with the groups that wait behind it."""

    blocker: TransactionBlocker
    groups: list[str]


def routes(shell: Shell) -> list[Route]:
    """The routes of this view."""
    pages = TransactionPages(shell)
    return [
        shell.view("/transactions", pages.show_all),
        shell.view("/transaction", pages.show),
        *shell.write("/transaction/abort", pages.abort),
        *shell.write("/transactions/abort-hanging", pages.abort_hanging),
    ]


class TransactionPages:
    """The list, one transactional id, and how a transaction is ended."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def show_all(self, request: Request) -> Response:
        """Blockers and all transactional ids."""
        admin = self._shell.clients(request).admin
        topic = request.query_params.get("topic", "")
        topics = [topic] if topic else None
        blockers, rows = await asyncio.gather(
            self._shell.snapshots.get(
                (request.state.login, "blockers", topic),
                lambda: admin.transaction_blockers(topics),
                wait_s=BLOCKERS_WAIT_S,
            ),
            admin.list_transactions(),
        )
        held = [Held(b, await self._waiting(request, b)) for b in blockers or []]
        query = {k: request.query_params.get(k, "") for k in ("q", "sort", "topic")}
        found: Any = listing(
            ("transactions",), query, rows, COLUMNS, _words, is_whole=is_part(request)
        )
        return self._shell.page(
            request,
            "transactions.html",
            held=held,
            is_known=blockers is not None,
            topic=topic,
            list=found,
        )

    async def _waiting(self, request: Request, blocker: TransactionBlocker) -> list[str]:
        """The groups whose position is at the blocked offset."""
        samples = await self._shell.sampler.of(request.state.login, wait_s=BRIEF_WAIT_S)
        tp = TopicPartition(blocker.topic, blocker.partition)
        return sorted(
            name
            for name, window in samples.windows.items()
            for row in window.partitions()
            if row.partition == tp and row.now.position == blocker.last_stable_offset
        )

    async def show(self, request: Request) -> Response:
        """One transactional id."""
        name = request.query_params.get("id", "")
        if not name:
            raise UsageError("which transactional id? The address names none")
        found = await self._shell.clients(request).admin.describe_transactions([name])
        now_ms = self._shell.services.clock.now_ms()
        return self._shell.page(request, "transaction.html", it=found[name], now_ms=now_ms)

    async def abort(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Fence the producer: its open transaction is aborted in all partitions (KIP-588)."""
        name = request.query_params.get("id", "")
        admin = self._shell.clients(request).admin
        it = (await admin.describe_transactions([name]))[name]
        if it.state != ONGOING:
            raise UsageError(
                f"transactional id {name!r} is in state {it.state}: nothing is left to abort"
            )

        async def apply(_secrets: Mapping[str, str]) -> str:
            await admin.fence_producers([name])
            return f"The transaction of {name} is aborted; its producer is fenced."

        rows = [f"{tp.topic}-{tp.partition}" for tp in it.partitions]
        changes = (
            Change("transaction", f"{it.state}, {', '.join(rows) or 'no partition'}", "aborted"),
            Change("producer epoch", str(it.producer_epoch), "a later one: the producer is fenced"),
        )
        state = [it.producer_id, it.producer_epoch, it.state, it.start_ms, sorted(rows)]
        return Plan(
            f"Abort the transaction of {name}",
            changes,
            state,
            apply,
            address("transaction", id=name),
            is_dangerous=True,
        )

    async def abort_hanging(self, request: Request, fields: Mapping[str, str]) -> Plan:
        """Write an abort marker for a transaction that no coordinator will end (KIP-664)."""
        given = Fields(fields)
        topic, partition = given.text("topic"), given.number("partition")
        first = given.number("first_offset")
        admin = self._shell.clients(request).admin
        blockers = await admin.transaction_blockers([topic])
        found = [
            b
            for b in blockers
            if (b.partition, b.first_offset) == (partition, first) and b.is_hanging
        ]
        if not found:
            raise UsageError(f"nothing hangs at offset {first} of {topic}-{partition} any more")

        async def apply(_secrets: Mapping[str, str]) -> str:
            await admin.abort_transaction((topic, partition), first_offset=first)
            return f"The transaction at {topic}-{partition} offset {first} is aborted."

        it: TransactionBlocker = found[0]
        what = f"{topic}-{partition}, producer {it.producer_id} epoch {it.producer_epoch}"
        return Plan(
            f"Abort the hanging transaction in {topic}-{partition}",
            (Change(what, f"open from offset {first}", "aborted"),),
            [it.producer_id, it.producer_epoch, first, it.last_stable_offset],
            apply,
            address("transactions"),
            is_dangerous=True,
        )


def _words(row: TransactionListing) -> str:
    return f"{row.transactional_id} {row.state} {row.producer_id}"
