"""Requests to a transaction or group coordinator, repeated until their outcome is known.

A request of a transaction whose response is lost may have been served: it is sent again until a
coordinator answers. The requests have connections of their own, so that none waits behind Produce.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from headwater.client.cluster import (
    KEY_TYPE_GROUP,
    KEY_TYPE_TRANSACTION,
    UNKNOWN_TOPIC_TRIES,
    Cluster,
)
from headwater.client.connection import Connection
from headwater.client.core.transaction_states import (
    TRANSACTION_VERSION_2,
    Request,
    Verdict,
    verdict,
)
from headwater.client.errors import kafka_error
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k26_end_txn import EndTxnRequest, EndTxnResponse
from headwater.wire.schema import SchemaError

T = TypeVar("T")
LANE = "transaction"
FEATURE = "transaction.version"
SOON_FIRST_S = 0.002
SOON_MAX_S = 0.05
"""Pauses while the coordinator writes the markers of the transaction before."""
V1_END_VERSION = 4
"""The last EndTxn version that leaves the epoch as it is."""


class CoordinatorCalls:
    """The coordinators that one client talks to, by key."""

    def __init__(self, cluster: Cluster) -> None:
        self.trouble: Exception | None = None
        """Why the request that runs has no outcome yet."""
        self._cluster = cluster
        self._nodes: dict[tuple[int, str], int] = {}

    @property
    def cause(self) -> str:
        """`trouble` as text, "" without one. A response that did not come in time has no text."""
        if self.trouble is None:
            return ""
        return str(self.trouble) or "no response in time"

    async def to_transaction(
        self,
        request: Request,
        transactional_id: str,
        attempt: Callable[[Connection], Awaitable[T]],
        on_lost: Callable[[], None] | None = None,
    ) -> T:
        """The result of `attempt` on a connection to the id's coordinator.

        `on_lost` is called when a response is lost: the request may still be served, late. Raises
        the KafkaError of a verdict that no repetition cures.
        """
        return await self._repeat(
            request, (KEY_TYPE_TRANSACTION, transactional_id), attempt, on_lost
        )

    async def to_group(
        self,
        request: Request,
        group_id: str,
        attempt: Callable[[Connection], Awaitable[T]],
        on_lost: Callable[[], None] | None = None,
    ) -> T:
        """The same, for a group's coordinator."""
        return await self._repeat(request, (KEY_TYPE_GROUP, group_id), attempt, on_lost)

    async def _repeat(
        self,
        request: Request,
        place: tuple[int, str],
        attempt: Callable[[Connection], Awaitable[T]],
        on_lost: Callable[[], None] | None,
    ) -> T:
        tries = soon = 0
        while True:
            try:
                node = self._nodes.get(place, -1)
                if node not in self._cluster.cache.brokers:
                    node = await self._cluster.coordinator(place[1], place[0])
                    self._nodes[place] = node
                connection = await self._cluster.connection(node, LANE)
                result = await attempt(connection)
            except (OSError, SchemaError, ValueError) as e:
                self.trouble, outcome = e, Verdict.FIND_COORDINATOR
                if on_lost is not None:
                    on_lost()
            except KafkaError as e:
                self.trouble, outcome = e, verdict(request, e.code)
                is_unknown = e.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if outcome in (Verdict.ABORT, Verdict.FATAL) or (
                    is_unknown and tries >= UNKNOWN_TOPIC_TRIES
                ):
                    self.trouble = None  # the coordinator has answered: this is the outcome
                    raise
            else:
                self.trouble = None
                return result
            if outcome is Verdict.RETRY_SOON:
                await asyncio.sleep(soon_s(soon))
                soon += 1
                continue
            if outcome is Verdict.FIND_COORDINATOR:
                self._nodes.pop(place, None)
            await asyncio.sleep(self._cluster.backoff_s(tries))
            tries += 1

    async def end(
        self,
        transactional_id: str,
        identity: tuple[int, int],
        version: int,
        *,
        commit: bool,
        on_lost: Callable[[], None] | None = None,
    ) -> tuple[int, int]:
        """Commit or abort the transaction of this producer id and epoch: EndTxn.

        The producer id and epoch of the next transaction: new ones in transaction version 2.
        """
        is_v2 = version >= TRANSACTION_VERSION_2
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=identity[0],
            producer_epoch=identity[1],
            committed=commit,
        )

        async def attempt(connection: Connection) -> tuple[int, int]:
            chosen = connection.version_for(EndTxnRequest, None if is_v2 else V1_END_VERSION)
            reply = await self._cluster.call_on(connection, request, EndTxnResponse, version=chosen)
            if reply.error_code:
                raise kafka_error(reply.error_code, "EndTxn")
            has_new = chosen > V1_END_VERSION and reply.producer_id >= 0
            return (reply.producer_id, reply.producer_epoch) if has_new else identity

        return await self.to_transaction(Request.END, transactional_id, attempt, on_lost)


def soon_s(attempt: int) -> float:
    """Seconds before retry `attempt` (from 0) after CONCURRENT_TRANSACTIONS."""
    return min(SOON_MAX_S, SOON_FIRST_S * (1 << min(attempt, 8)))


def transaction_version(connection: Connection) -> int:
    """The transaction version that the broker has finalized and serves: 1 or 2."""
    served = connection.versions.get(EndTxnRequest.api_key, (0, 0))
    finalized = connection.features.get(FEATURE, 0)
    return 2 if finalized >= TRANSACTION_VERSION_2 and served[1] > V1_END_VERSION else 1
