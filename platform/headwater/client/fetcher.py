"""The consumer's shell on the loop: one fetch under way per broker, chunks handed to the reader.

Fetches go over a lane of their own, as a parked one would delay whatever is queued behind it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from uuid import UUID

from headwater.client.admin.topics import list_one_offset
from headwater.client.blocking.record_client import next_offset_after
from headwater.client.cluster import Cluster
from headwater.client.core.fetching import NO_REPLICA, Chunk, PartitionFetch
from headwater.client.core.metadata import NO_LEADER, STALE_PATIENCE_S, StaleAnswers
from headwater.client.errors import OffsetOutOfRangeError, UnknownServerError, kafka_error
from headwater.client.values import Broker, OffsetAndMetadata, TopicPartition
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k01_fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headwater.wire.primitives import ZERO_UUID
from headwater.wire.schema import SchemaError

FETCH_LANE = "fetch"
NAMES_FETCH_VERSION = 12
BUSY_WAIT_MS = 20
"""How long a fetch may be parked while a partition with a full buffer is left out of it."""
BUFFERED_FETCHES = 2
"""A partition is asked for again while fewer full fetches than this are buffered."""
STALE_BACKOFFS = 3
"""So often the pause between refreshes is doubled while no broker knows a leader as new: others may
fail over meanwhile."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FetchOptions:
    """Limits of a fetch, with Kafka's names."""

    isolation: int
    min_bytes: int
    max_bytes: int
    max_partition_bytes: int
    max_wait_ms: int
    reset_to: int | None
    """The timestamp code of auto_offset_reset; None for "none"."""
    rack_id: str


class Fetcher:
    """Everything of a consumer's reading that runs on the loop. `lock` guards the partitions."""

    def __init__(
        self,
        cluster: Cluster,
        options: FetchOptions,
        condition: threading.Condition,
        load_committed: Callable[
            [list[TopicPartition]], Awaitable[dict[TopicPartition, OffsetAndMetadata]]
        ],
    ) -> None:
        self.partitions: dict[TopicPartition, PartitionFetch] = {}
        self._cluster = cluster
        self._options = options
        self._condition = condition
        self._load_committed = load_committed
        self._nodes: dict[int, asyncio.Task[None]] = {}
        self._wakes: dict[int, asyncio.Event] = {}
        self._positioning: asyncio.Task[None] | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._refreshes = 0
        self._stale = StaleAnswers(STALE_PATIENCE_S)

    def stop(self) -> None:
        """End every task."""
        tasks = [*self._nodes.values(), self._positioning, self._refreshing]
        for task in tasks:
            if task is not None:
                task.cancel()
        if self._retry is not None:
            self._retry.cancel()

    def poke(self) -> None:
        """Something changed: partitions, positions, room in the buffers."""
        with self._condition:
            lost = [p for p in self.partitions.values() if p.position is None and p.error is None]
            sources = {self._source(tp, entry) for tp, entry in self.partitions.items()}
            gone = self._cluster.cache.awaited_epochs.keys() - self.partitions.keys()
        for place in gone:
            self._cluster.cache.ignore_epoch(*place)
        if lost and (self._positioning is None or self._positioning.done()):
            self._positioning = asyncio.create_task(self._find_positions())
        for node_id in sources:
            if node_id not in self._cluster.cache.brokers:
                self._need_metadata()
                continue
            if node_id not in self._nodes or self._nodes[node_id].done():
                self._wakes[node_id] = asyncio.Event()
                self._nodes[node_id] = asyncio.create_task(self._serve(node_id))
            self._wakes[node_id].set()

    def _source(self, tp: TopicPartition, entry: PartitionFetch) -> int:
        """Whom to fetch this partition from; -1 when nobody leads it."""
        cache = self._cluster.cache
        if entry.to_heed >= 0:
            cache.heed_epoch(*tp, entry.to_heed)
            entry.to_heed = -1
        if tp in cache.awaited_epochs:
            return NO_LEADER  # nor from a replica that an older one prefers
        leader = cache.leader(*tp)
        source = entry.source(leader, self._cluster.clock.monotonic())
        return source if source in cache.brokers else leader

    def _poke_later(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        if self._retry is not None:
            if self._retry.when() <= loop.time() + delay_s:
                return
            self._retry.cancel()

        def fire() -> None:
            self._retry = None
            self.poke()

        self._retry = loop.call_later(delay_s, fire)

    def _need_metadata(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())

    async def _refresh(self) -> None:
        """Every other time somebody else is asked: a broker that is cut off tells of leaders that
        are none any more, and its connection is as good as any."""
        with self._condition:
            topics = {tp.topic for tp in self.partitions}
        self._refreshes += 1
        elsewhere = self._refreshes % 2 == 0 or bool(self._cluster.cache.awaited_epochs)
        tries = 0
        try:
            await self._cluster.refresh(topics, elsewhere=elsewhere)
            tries = self._judge_stale()
        except KafkaError:
            pass  # tried again by the next poke
        await asyncio.sleep(self._cluster.backoff_s(min(tries, STALE_BACKOFFS)))
        self._poke_later(0)

    def _judge_stale(self) -> int:
        """A broker has answered; gives how often that brought nothing for an awaited epoch."""
        cache, now = self._cluster.cache, self._cluster.clock.monotonic()
        tries, given_up = self._stale.judge(cache.awaited_epochs, len(cache.brokers), now)
        for place in given_up:
            log.warning(
                "%s-%d: an offset is of leader epoch %d, and for %.0f s no broker has known one as "
                "new: they are believed now. Was the topic made anew?",
                *(*place, cache.awaited_epochs[place], STALE_PATIENCE_S),
            )
            self._believe(TopicPartition(*place))
        return tries

    def _believe(self, tp: TopicPartition) -> None:
        self._cluster.cache.ignore_epoch(*tp)
        with self._condition:
            if tp in self.partitions:
                self.partitions[tp].leader_epoch = -1  # not to be committed again

    async def _find_positions(self) -> None:
        """Committed offsets first, then where `auto_offset_reset` says."""
        with self._condition:
            asked = {
                tp: (p.stamp, p.reset_to) for tp, p in self.partitions.items() if p.position is None
            }
        fresh = [tp for tp, (_, reset_to) in asked.items() if reset_to is None]
        try:
            committed = await self._load_committed(fresh) if fresh else {}
        except (OSError, KafkaError) as e:
            if isinstance(e, KafkaError) and not e.retriable and not isinstance(e, OSError):
                self._fail(fresh, e)
                return
            self._poke_later(self._cluster.backoff_s(1))
            return
        await asyncio.gather(
            *(
                self._position_one(tp, stamp, reset_to, committed.get(tp))
                for tp, (stamp, reset_to) in asked.items()
            )
        )
        self.poke()
        self._find_again({stamp for stamp, _ in asked.values()})

    def _find_again(self, asked: set[int]) -> None:
        """What has no position yet needs another round: no poke during this one began it."""
        with self._condition:
            left = {
                p.stamp for p in self.partitions.values() if p.position is None and p.error is None
            }
        if left:
            self._poke_later(0 if left - asked else self._cluster.backoff_s(1))

    def _fail(self, partitions: list[TopicPartition], error: Exception) -> None:
        with self._condition:
            for tp in partitions:
                if tp in self.partitions:
                    self.partitions[tp].error = error
            self._condition.notify_all()

    async def _position_one(
        self,
        tp: TopicPartition,
        stamp: int,
        reset_to: int | None,
        committed: OffsetAndMetadata | None,
    ) -> None:
        if committed is not None and reset_to is None:
            self._set_position(tp, stamp, committed.offset, committed.leader_epoch)
            return
        timestamp = self._options.reset_to if reset_to is None else reset_to
        if timestamp is None:
            text = (
                f"{tp.topic}-{tp.partition} has no committed offset and auto_offset_reset is none"
            )
            self._fail([tp], OffsetOutOfRangeError(text))
            return
        if tp in self._cluster.cache.awaited_epochs:
            self._need_metadata()
            return
        try:
            found = await list_one_offset(self._cluster, tp, timestamp, self._options.isolation)
            self._cluster.cache.heed_epoch(*tp, found.leader_epoch)
            self._set_position(tp, stamp, found.offset, -1)
        except (OSError, KafkaError) as e:
            fatal = isinstance(e, KafkaError) and not isinstance(e, OSError) and not e.retriable
            if fatal:
                self._fail([tp], e)
            else:
                self._need_metadata()

    def _set_position(self, tp: TopicPartition, stamp: int, offset: int, epoch: int) -> None:
        with self._condition:
            entry = self.partitions.get(tp)
            # A seek or a new assignment meanwhile is newer than this answer.
            if entry is not None and entry.stamp == stamp:
                entry.seek(offset, epoch)
            self._condition.notify_all()

    async def _serve(self, node_id: int) -> None:
        """Fetch from one broker while something is to be had from it."""
        wake = self._wakes[node_id]
        attempt = 0
        while True:
            wake.clear()
            wanted, is_partial, has_any = self._wanted(node_id)
            if not has_any:
                return
            if not wanted:
                await wake.wait()
                continue
            try:
                await self._fetch(node_id, wanted, is_partial=is_partial)
                attempt = 0
            except (OSError, SchemaError, ValueError, KafkaError):
                self._leave_replicas(wanted)
                self._release(wanted)
                self._need_metadata()
                await asyncio.sleep(self._cluster.backoff_s(attempt))
                attempt += 1

    def _wanted(self, node_id: int) -> tuple[dict[TopicPartition, tuple[int, int]], bool, bool]:
        """{partition: (offset, stamp)} to ask for; whether some are left out; whether any is."""
        now = self._cluster.clock.monotonic()
        room = BUFFERED_FETCHES * self._options.max_partition_bytes
        wanted: dict[TopicPartition, tuple[int, int]] = {}
        is_partial = has_any = False
        with self._condition:
            for tp, entry in self.partitions.items():
                if self._source(tp, entry) != node_id:
                    continue
                has_any = True
                if entry.position is None or entry.is_paused or entry.error is not None:
                    continue
                if entry.not_before > now:
                    is_partial = True
                    self._poke_later(entry.not_before - now)
                elif entry.buffered_bytes >= room:
                    is_partial = True
                elif not entry.in_flight:
                    entry.in_flight = True
                    wanted[tp] = (entry.fetch_offset, entry.stamp)
        return wanted, is_partial, has_any

    def _leave_replicas(self, wanted: dict[TopicPartition, tuple[int, int]]) -> None:
        """The broker could not be asked: go to the leaders."""
        with self._condition:
            for tp in wanted:
                if tp in self.partitions:
                    self.partitions[tp].prefer(NO_REPLICA, 0.0)

    def _release(self, wanted: dict[TopicPartition, tuple[int, int]]) -> None:
        with self._condition:
            for tp, (_, stamp) in wanted.items():
                entry = self.partitions.get(tp)
                if entry is not None and entry.stamp == stamp:
                    entry.in_flight = False

    async def _fetch(
        self, node_id: int, wanted: dict[TopicPartition, tuple[int, int]], *, is_partial: bool
    ) -> None:
        connection = await self._cluster.connection(node_id, FETCH_LANE)
        version = connection.version_for(FetchRequest)
        by_topic: dict[str, list[FetchPartition]] = {}
        for tp, (offset, _) in wanted.items():
            known = self._cluster.cache.partition(*tp)
            row = FetchPartition(
                partition=tp.partition,
                current_leader_epoch=-1 if known is None else known.leader_epoch,
                fetch_offset=offset,
                partition_max_bytes=self._options.max_partition_bytes,
            )
            by_topic.setdefault(tp.topic, []).append(row)
        ids: dict[str, UUID] = {}
        for name in by_topic:
            topic = self._cluster.cache.topics.get(name)
            ids[name] = ZERO_UUID if topic is None else topic.topic_id
        if ZERO_UUID in ids.values():
            version = min(version, NAMES_FETCH_VERSION)
        request = FetchRequest(
            max_wait_ms=BUSY_WAIT_MS if is_partial else self._options.max_wait_ms,
            min_bytes=self._options.min_bytes,
            max_bytes=self._options.max_bytes,
            isolation_level=self._options.isolation,
            topics=tuple(
                FetchTopic(topic=name, topic_id=ids[name], partitions=tuple(rows))
                for name, rows in by_topic.items()
            ),
            rack_id=self._options.rack_id,
        )
        reply = await self._cluster.call_over(connection, request, FetchResponse, version=version)
        if reply.error_code:
            raise kafka_error(reply.error_code, f"fetch from broker {node_id}")
        for endpoint in reply.node_endpoints:
            self._cluster.cache.add_broker(
                Broker(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
            )
        self._take(wanted, reply.responses, {v: k for k, v in ids.items()})

    def _take(
        self,
        wanted: dict[TopicPartition, tuple[int, int]],
        answers: tuple[FetchableTopicResponse, ...],
        names: dict[UUID, str],
    ) -> None:
        news = False
        with self._condition:
            for topic in answers:
                name = topic.topic or names.get(topic.topic_id, "")
                for answer in topic.partitions:
                    tp = TopicPartition(name, answer.partition_index)
                    entry, asked = self.partitions.get(tp), wanted.get(tp)
                    if entry is not None and asked is not None and entry.stamp == asked[1]:
                        news |= self._take_one(tp, entry, asked, answer)
            if news:
                self._condition.notify_all()
        self._release(wanted)

    def _take_one(
        self,
        tp: TopicPartition,
        entry: PartitionFetch,
        asked: tuple[int, int],
        answer: PartitionData,
    ) -> bool:
        """True when the reader has something to look at."""
        if answer.error_code:
            self._refused(tp, entry, answer)
            return entry.error is not None
        entry.high_watermark = answer.high_watermark
        entry.last_stable_offset = answer.last_stable_offset
        entry.log_start_offset = answer.log_start_offset
        if answer.preferred_read_replica != NO_REPLICA:
            lease_s = self._cluster.options.metadata_max_age_ms / 1000
            until = self._cluster.clock.monotonic() + lease_s
            entry.prefer(answer.preferred_read_replica, until)
            self._poke_later(0)
        records = memoryview(answer.records or b"")
        next_offset, end, epoch = next_offset_after(records, asked[0])
        if not end and len(records):
            limit = self._options.max_partition_bytes
            text = (
                f"{tp.topic}-{tp.partition} at offset {asked[0]}: no whole batch in {limit} bytes"
            )
            entry.error = kafka_error(ErrorCode.RECORD_LIST_TOO_LARGE, text)
            return True
        aborted = [(a.producer_id, a.first_offset) for a in answer.aborted_transactions or ()]
        chunk = Chunk(records[:end], asked[0], next_offset, aborted, epoch)
        return entry.took(chunk, asked[1]) and end > 0

    def _refused(self, tp: TopicPartition, entry: PartitionFetch, answer: PartitionData) -> None:
        code = kafka_error(answer.error_code).code
        if entry.preferred_replica != NO_REPLICA:  # the leader knows better, and may send us again
            entry.prefer(NO_REPLICA, 0.0)
            entry.not_before = self._cluster.clock.monotonic() + self._cluster.backoff_s(1)
            self._poke_later(0)
            return
        where = f"{tp.topic}-{tp.partition} at offset {entry.fetch_offset}"
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if entry.chunks or entry.has_data:
                # The reader has not come that far; ask again once it has.
                entry.not_before = self._cluster.clock.monotonic() + self._cluster.backoff_s(1)
            elif self._options.reset_to is None:
                entry.error = OffsetOutOfRangeError(where)
            else:
                entry.seek_by_timestamp(self._options.reset_to)
                self._poke_later(0)
            return
        now = self._cluster.clock.monotonic()
        if code == ErrorCode.UNKNOWN_SERVER_ERROR:
            # A hiccup of the broker or of its reads from a table: seen only when it lasts.
            if entry.failed(now):
                entry.error = UnknownServerError(self._failure(tp, where, now, entry))
                return
        elif not code.retriable:
            entry.error = kafka_error(answer.error_code, where)
            return
        told = answer.current_leader
        entry.not_before = now + self._cluster.backoff_s(1)
        if self._cluster.cache.move_leader(*tp, told.leader_id, told.leader_epoch):
            entry.not_before = 0.0
            self._poke_later(0)
        else:
            self._need_metadata()

    def _failure(self, tp: TopicPartition, where: str, now: float, entry: PartitionFetch) -> str:
        leader = self._cluster.cache.leader(*tp)
        since = entry.failing_since
        lasted = now - (now if since is None else since)
        entry.failing_since = None  # whoever polls on is patient anew
        return (
            f"{where}: broker {leader} failed for {lasted:.0f} s; its log says why. If the topic "
            f"is tiered, check that its Delta table can be read: headwater verify {tp.topic}"
        )
