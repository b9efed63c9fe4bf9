"""Fetches the partitions of one bucket from the source: one fetch per broker at a time.

What differs from a consumer's fetcher: batches stay as they are, and nothing is reset. A gap, a
truncation or a topic created again stops the partition.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from uuid import UUID

from headwater.client.admin.topics import list_one_offset
from headwater.client.blocking.fetch import next_offset_after
from headwater.client.cluster import Cluster
from headwater.client.core.metadata import NO_LEADER
from headwater.client.errors import error_code
from headwater.client.values import Broker, TopicPartition
from headwater.errors import ErrorCode, KafkaError
from headwater.mirror.config import MirrorConfig
from headwater.mirror.core.partition_copy import PartitionCopy
from headwater.mirror.core.state import SourceEnd
from headwater.wire.apis.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headwater.wire.primitives import ZERO_UUID
from headwater.wire.schema import SchemaError

READ_COMMITTED = 1
EARLIEST, LATEST = -2, -1
NAMES_FETCH_VERSION = 12
"""The last Fetch version with topic names; later ones have topic ids (KIP-516)."""
BUSY_WAIT_MS = 20
"""max_wait_ms of a fetch that leaves out a partition whose buffer is full."""
RETRY_S = 0.25
"""A partition whose fetch failed waits so long."""
_MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_OTHER_TOPIC = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
log = logging.getLogger(__name__)


class SourceReader:
    """Keeps the buffers of partitions filled. On the loop."""

    def __init__(
        self,
        cluster: Cluster,
        config: MirrorConfig,
        copies: Mapping[TopicPartition, PartitionCopy],
        lane: str,
        on_data: Callable[[], None],
    ) -> None:
        self.bytes_fetched = 0
        self._cluster = cluster
        self._config = config
        self._copies = copies
        self._lane = lane
        self._on_data = on_data
        self._nodes: dict[int, asyncio.Task[None]] = {}
        self._room: dict[int, asyncio.Event] = {}
        self._refreshing: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """End every task."""
        for task in (*self._nodes.values(), self._refreshing):
            if task is not None:
                task.cancel()

    def wake(self) -> None:
        """Look again: partitions, leaders or the room in the buffers have changed."""
        cache = self._cluster.cache
        nodes = {self._node_of(copy) for copy in self._copies.values() if not copy.stopped}
        for node in nodes:
            if node not in cache.brokers:
                self._request_metadata()
                continue
            if node not in self._nodes or self._nodes[node].done():
                self._room[node] = asyncio.Event()
                self._nodes[node] = asyncio.get_running_loop().create_task(self._serve(node))
            self._room[node].set()

    def _node_of(self, copy: PartitionCopy) -> int:
        return self._cluster.cache.leader(*copy.tp)

    def _request_metadata(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def _refresh(self) -> None:
        try:
            await self._cluster.refresh({tp.topic for tp in self._copies})
        except KafkaError as error:
            for copy in self._copies.values():
                copy.trouble = str(error)
        for copy in self._copies.values():
            self._check_topic(copy)
        await asyncio.sleep(self._cluster.backoff_s(2))
        asyncio.get_running_loop().call_soon(self.wake)

    def _check_topic(self, copy: PartitionCopy) -> None:
        topic = self._cluster.cache.topics.get(copy.tp.topic)
        if topic is None:
            copy.trouble = f"the source has no topic {copy.tp.topic}"
        elif copy.topic_id and str(topic.topic_id) != copy.topic_id:
            copy.stop(
                f"topic {copy.tp.topic} was created again in the source (its id is "
                f"{topic.topic_id}, not {copy.topic_id}): delete it in the target, then "
                f"`headwater mirror forget {copy.tp.topic}` begins it anew"
            )
        elif self._cluster.cache.leader(*copy.tp) == NO_LEADER:
            copy.trouble = "the partition has no leader"

    async def _serve(self, node: int) -> None:
        """Fetch from one broker while it leads partitions of the bucket."""
        room = self._room[node]
        tries = 0
        while True:
            room.clear()
            led = [c for c in self._copies.values() if not c.stopped and self._node_of(c) == node]
            if not led:
                return
            now = self._cluster.clock.monotonic()
            limit = self._config.buffer_bytes
            wanted = [c for c in led if c.buffered_bytes < limit and c.not_before <= now]
            held = sum(c.buffered_bytes for c in self._copies.values())
            if not wanted or held >= self._config.buffer_bytes_max:
                waits = any(c.not_before > now for c in led)
                try:
                    async with asyncio.timeout(RETRY_S if waits else None):
                        await room.wait()
                except TimeoutError:
                    pass  # a partition's pause is over
                continue
            try:
                await self._fetch(node, wanted, is_partial=len(wanted) < len(led))
                tries = 0
            except (OSError, SchemaError, ValueError, KafkaError) as error:
                for copy in wanted:
                    copy.trouble = str(error) or type(error).__name__
                self._request_metadata()
                await asyncio.sleep(self._cluster.backoff_s(tries))
                tries += 1

    async def _fetch(self, node: int, wanted: list[PartitionCopy], *, is_partial: bool) -> None:
        connection = await self._cluster.connection(node, self._lane)
        version = connection.version_for(FetchRequest)
        by_topic: dict[str, list[FetchPartition]] = {}
        for copy in wanted:
            known = self._cluster.cache.partition(*copy.tp)
            row = FetchPartition(
                partition=copy.tp.partition,
                current_leader_epoch=-1 if known is None else known.leader_epoch,
                fetch_offset=copy.fetch_offset,
                last_fetched_epoch=copy.fetch_epoch if version >= NAMES_FETCH_VERSION else -1,
                partition_max_bytes=self._config.fetch_partition_bytes,
            )
            by_topic.setdefault(copy.tp.topic, []).append(row)
        ids = {copy.tp.topic: UUID(copy.topic_id or ZERO_UUID.hex) for copy in wanted}
        if ZERO_UUID in ids.values():
            version = min(version, NAMES_FETCH_VERSION)
        request = FetchRequest(
            max_wait_ms=BUSY_WAIT_MS if is_partial else self._config.fetch_wait_ms,
            min_bytes=self._config.fetch_min_bytes,
            max_bytes=self._config.fetch_bytes,
            isolation_level=READ_COMMITTED,
            topics=tuple(
                FetchTopic(topic=name, topic_id=ids[name], partitions=tuple(rows))
                for name, rows in by_topic.items()
            ),
        )
        reply = await self._cluster.call_on(connection, request, FetchResponse, version=version)
        if reply.error_code:
            raise KafkaError(error_code(reply.error_code), f"fetch from broker {node}")
        for endpoint in reply.node_endpoints:
            self._cluster.cache.add_broker(
                Broker(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
            )
        await self._apply(reply, {topic_id: name for name, topic_id in ids.items()})

    async def _apply(self, reply: FetchResponse, names: Mapping[UUID, str]) -> None:
        received = 0
        for topic in reply.responses:
            name = topic.topic or names.get(topic.topic_id, "")
            for row in topic.partitions:
                copy = self._copies.get(TopicPartition(name, row.partition_index))
                if copy is not None and not copy.stopped:
                    received += await self._apply_partition(copy, row)
        self.bytes_fetched += received
        if received:
            self._on_data()

    async def _apply_partition(self, copy: PartitionCopy, row: PartitionData) -> int:
        if row.error_code:
            await self._failed(copy, row)
            return 0
        diverges_at = row.diverging_epoch.end_offset
        if 0 <= diverges_at < copy.fetch_offset:
            copy.stop(truncated(copy, diverges_at))
            return 0
        copy.end = SourceEnd(row.last_stable_offset, row.log_start_offset)
        records = memoryview(row.records or b"")
        _, last, _ = next_offset_after(records, copy.fetch_offset)
        aborted = [(a.producer_id, a.first_offset) for a in row.aborted_transactions or ()]
        try:
            return copy.on_fetch(records[:last], aborted)
        except KafkaError as error:
            copy.stop(
                f"the source's batch cannot be read: {error}: mend or pass it, with "
                f"`headwater mirror skip {copy.tp.topic}:{copy.tp.partition} --to OFFSET`"
            )
            return 0

    async def _failed(self, copy: PartitionCopy, row: PartitionData) -> None:
        code = error_code(row.error_code)
        copy.trouble = f"fetch: {code.name}"
        copy.not_before = self._cluster.clock.monotonic() + RETRY_S
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(copy)
        elif code in _MOVED or code in _OTHER_TOPIC:
            leader = row.current_leader
            if not self._cluster.cache.move_leader(*copy.tp, leader.leader_id, leader.leader_epoch):
                self._request_metadata()

    async def _out_of_range(self, copy: PartitionCopy) -> None:
        """The source does not have the next record: never skip what it lost."""
        start = (await list_one_offset(self._cluster, copy.tp, EARLIEST, 0)).offset
        end = (await list_one_offset(self._cluster, copy.tp, LATEST, 0)).offset
        if copy.fetch_offset < start:
            copy.stop(
                f"the source deleted offsets {copy.fetch_offset} to {start - 1} before they were "
                f"mirrored: accept the gap with `headwater mirror skip "
                f"{copy.tp.topic}:{copy.tp.partition} --to {start}`"
            )
        elif copy.fetch_offset > end:
            copy.stop(truncated(copy, end))


def truncated(copy: PartitionCopy, end: int) -> str:
    """The reason of a stop: the target has records that the source lost."""
    return (
        f"the source lost offsets {end} to {copy.fetch_offset - 1}, which the target has (an "
        f"unclean election?): accept it with `headwater mirror skip "
        f"{copy.tp.topic}:{copy.tp.partition} --to {end}`"
    )
