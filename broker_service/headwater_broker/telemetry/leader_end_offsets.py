"""End offsets of partitions that other brokers lead, asked of their leaders (ListOffsets).

A group's coordinator knows what its group committed, and may host none of those partitions: the lag
needs the high watermarks of their leaders.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from headwater.errors import HeadwaterError
from headwater.ports.network import Connect
from headwater.wire.apis.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headwater.wire.control import LiveBroker
from headwater.wire.framing import decode_response, encode_request
from headwater_broker.metadata.cache import MetadataCache

TopicPartition = tuple[str, int]

LATEST = -1
"""ListOffsets' timestamp of the high watermark."""
CONSUMER = -1
VERSION = 7
PARTITIONS_PER_REQUEST = 200
"""Encoding more would hold the loop for over a millisecond."""
LEADER_TIMEOUT_S = 0.7
"""A leader that hangs delays a scrape by this much at most."""
_CORRELATION_ID = 0

logger = logging.getLogger(__name__)


class LeaderEndOffsets:
    """The last known end offset of each partition asked for."""

    def __init__(
        self,
        view: MetadataCache,
        connect: Connect,
        listener: str,
        timeout_s: float = LEADER_TIMEOUT_S,
    ) -> None:
        self._view = view
        self._connect = connect
        self._listener = listener
        self._timeout_s = timeout_s
        self._known: dict[TopicPartition, int] = {}

    def get(self, topic: str, partition: int) -> int | None:
        """The end offset as of the last `refresh` that reached the leader; None: never."""
        return self._known.get((topic, partition))

    async def refresh(self, wanted: Iterable[TopicPartition]) -> None:
        """Ask the leaders of these partitions, all at once, and forget all other partitions.

        A leader that does not answer leaves what was known before: ends only grow.
        """
        partitions = set(wanted)
        self._known = {key: end for key, end in self._known.items() if key in partitions}
        by_leader: dict[int, list[TopicPartition]] = {}
        for key in sorted(partitions):
            state = self._view.partition(*key)
            if state is not None and state.leader_id in self._view.brokers:
                by_leader.setdefault(state.leader_id, []).append(key)
        await asyncio.gather(
            *(self._ask_in_time(self._view.brokers[b], keys) for b, keys in by_leader.items())
        )

    async def _ask_in_time(self, leader: LiveBroker, keys: list[TopicPartition]) -> None:
        try:
            await asyncio.wait_for(self._ask(leader, keys), self._timeout_s)
        except (OSError, TimeoutError, HeadwaterError) as error:
            logger.info("no end offsets from broker %d: %r", leader.broker_id, error)

    async def _ask(self, leader: LiveBroker, keys: list[TopicPartition]) -> None:
        endpoint = next((e for e in leader.endpoints if e.listener == self._listener), None)
        if endpoint is None:
            raise ConnectionError(f"it has no listener {self._listener}")
        connection = await self._connect(endpoint.host, endpoint.port)
        try:
            for at in range(0, len(keys), PARTITIONS_PER_REQUEST):
                request = _request(keys[at : at + PARTITIONS_PER_REQUEST])
                raw = await connection.request(
                    encode_request(request, VERSION, _CORRELATION_ID, None)
                )
                reply = decode_response(ListOffsetsResponse, VERSION, raw, _CORRELATION_ID)
                for topic in reply.topics:
                    for row in topic.partitions:
                        if row.error_code == 0:
                            self._known[topic.name, row.partition_index] = row.offset
        finally:
            connection.close()


def _request(keys: list[TopicPartition]) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for topic, partition in keys:
        asked = ListOffsetsPartition(partition_index=partition, timestamp=LATEST)
        topics.setdefault(topic, []).append(asked)
    return ListOffsetsRequest(
        replica_id=CONSUMER,
        topics=tuple(ListOffsetsTopic(name=t, partitions=tuple(p)) for t, p in topics.items()),
    )
