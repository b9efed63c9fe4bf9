"""A topic's producers: those that its leaders keep, and the transactions that they have open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headwater.client.transaction_values import TransactionBlocker, TransactionListing
from headwater.client.values import ProducerDescription, TopicPartition
from headwater.errors import KafkaError
from headwater_gateway.console.listing import Column, listing
from headwater_gateway.console.shell import Shell, is_part
from headwater_gateway.console.views.transactions import BLOCKERS_WAIT_S


class ProducerRow(NamedTuple):
    """A producer in a partition."""

    partition: int
    producer: ProducerDescription
    transactional_id: str | None
    """The transactional id that has this producer id now; None: none, or not known."""
    blocker: TransactionBlocker | None
    """Set where its transaction holds readers of read_committed back."""

    @property
    def open_from(self) -> int | None:
        """The first offset of its open transaction; None without one."""
        return self.producer.current_transaction_start_offset

    @property
    def last_sequence(self) -> int | None:
        """Of its last batch; None where a marker came last."""
        found = self.producer.last_sequence
        return found if found >= 0 else None


COLUMNS = (
    Column("partition", "Partition", lambda r: r.partition, is_number=True),
    Column("producer", "Producer id", lambda r: r.producer.producer_id, is_number=True),
    Column("epoch", "Epoch", lambda r: r.producer.producer_epoch, is_number=True,
           is_wide_only=True),
    Column("id", "Transactional id", lambda r: r.transactional_id or ""),
    Column("open", "Open from", lambda r: r.open_from, is_number=True),
    Column("last", "Last batch", lambda r: r.producer.last_timestamp, is_number=True),
    Column("sequence", "Last sequence", lambda r: r.last_sequence, is_number=True,
           is_wide_only=True),
)  # fmt: skip


def route(shell: Shell) -> Route:
    """The route of this view."""
    return shell.view("/topics/{topic}/producers", ProducersPage(shell).show)


class ProducersPage:
    """The tab."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell

    async def show(self, request: Request) -> Response:
        """Who writes, and what is not committed yet."""
        name = request.path_params["topic"]
        admin = self._shell.clients(request).admin
        topic = (await admin.describe_topics([name], patient=False))[name]
        led = [TopicPartition(name, p.partition) for p in topic.partitions if p.leader >= 0]
        found, blockers = await asyncio.gather(
            admin.describe_producers(led),
            self._shell.snapshots.get(
                (request.state.login, "blockers", name),
                lambda: admin.transaction_blockers([name]),
                wait_s=BLOCKERS_WAIT_S,
            ),
        )
        rows = rows_of(found, await self._ids(admin, found.values()), blockers or [])
        query = {k: request.query_params.get(k, "") for k in ("q", "sort")}
        parts = ("topics", name, "producers")
        shown: Any = listing(parts, query, rows, COLUMNS, _words, is_whole=is_part(request))
        now_ms = self._shell.services.clock.now_ms()
        return self._shell.page(
            request,
            "topic_producers.html",
            name=name,
            list=shown,
            rows=rows,
            leaderless=len(topic.partitions) - len(led),
            now_ms=now_ms,
        )

    async def _ids(
        self, admin: Any, producers: Iterable[list[ProducerDescription]]
    ) -> list[TransactionListing]:
        """The transactional ids of these producers, as far as this user may see them."""
        wanted = {row.producer_id for rows in producers for row in rows}
        if not wanted:
            return []
        try:
            rows: list[TransactionListing] = await admin.list_transactions(
                producer_ids=sorted(wanted)
            )
        except KafkaError:  # the page says what the leaders know
            return []
        return rows


def rows_of(
    found: Mapping[TopicPartition, list[ProducerDescription]],
    ids: Iterable[TransactionListing],
    blockers: Iterable[TransactionBlocker],
) -> list[ProducerRow]:
    """A row per producer and partition."""
    by_id = {row.producer_id: row.transactional_id for row in ids}
    held = {(b.partition, b.producer_id, b.first_offset): b for b in blockers}
    rows = []
    for tp, producers in found.items():
        for one in producers:
            first = one.current_transaction_start_offset
            blocker = None if first is None else held.get((tp.partition, one.producer_id, first))
            name = by_id.get(one.producer_id)
            rows.append(ProducerRow(tp.partition, one, name, blocker))
    return rows


def _words(row: ProducerRow) -> str:
    state = "open" if row.open_from is not None else ""
    return f"{row.partition} {row.producer.producer_id} {row.transactional_id or ''} {state}"
