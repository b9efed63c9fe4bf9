"""A consumer's fetches, on its loop: one per broker at a time, into the partitions' buffers.

Fetches have a connection of their own to each broker: a parked one would delay other requests.
`refused_fetches` decides what follows from an error.
"""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

from headwater.client.blocking.fetch import next_offset_after
from headwater.client.cluster import Cluster
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.core.completed_fetch import CompletedFetch
from headwater.client.core.metadata import NO_LEADER, StaleMetadata
from headwater.client.core.partition_fetch_state import NO_REPLICA, PartitionFetchState
from headwater.client.errors import kafka_error
from headwater.client.offset_fetcher import LoadCommitted, OffsetFetcher
from headwater.client.outages import OutageLog
from headwater.client.refused_fetches import AfterRefusal, RefusedFetches
from headwater.client.subscription_state import SubscriptionState
from headwater.client.values import Broker, TopicPartition
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
"""The last Fetch version with topic names; later ones have topic ids (KIP-516)."""
BUSY_WAIT_MS = 20
"""fetch_max_wait_ms of a fetch that leaves out a partition because its buffer is full."""
BUFFERED_FETCHES = 2
"""A partition is fetched again while fewer full fetches than this are buffered."""
STALE_BACKOFFS = 3
"""The pause between refreshes doubles so often while no broker knows a required leader epoch: other
partitions may fail over in the meantime."""
LATE_RESPONSE_S = 1.0
"""A response that comes so long after fetch_max_wait_ms is an outage."""
log = logging.getLogger(__name__)


class FetchCounters:
    """What `Consumer.statistics` counts of fetches. Written on the loop only."""

    __slots__ = ("bytes_fetched", "fetches", "latency_max_s", "latency_sum_s")

    def __init__(self) -> None:
        self.bytes_fetched = self.fetches = 0
        self.latency_sum_s = self.latency_max_s = 0.0


class Fetcher:
    """Everything of a consumer's reading that runs on the loop."""

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        state: SubscriptionState,
        load_committed: LoadCommitted,
    ) -> None:
        self.counters = FetchCounters()
        self._cluster = cluster
        self._options = options
        self._state = state
        self._nodes: dict[int, asyncio.Task[None]] = {}
        self._wakes: dict[int, asyncio.Event] = {}
        self._due_at: dict[int, float] = {}
        """Node id -> when its response to the fetch in flight is due, in monotonic seconds."""
        self._refreshing: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self._refreshes = 0
        self._stale = StaleMetadata(options.stale_leader_timeout_ms / 1000)
        self._refusals = RefusedFetches(cluster, options)
        self._offsets = OffsetFetcher(
            cluster,
            options,
            state,
            load_committed,
            wake=self.wake,
            wake_later=self._wake_later,
            request_metadata=self._request_metadata,
        )

    def stop(self) -> None:
        """End every task."""
        self._offsets.stop()
        for task in (*self._nodes.values(), self._refreshing):
            if task is not None:
                task.cancel()
        if self._retry is not None:
            self._retry.cancel()

    def wake(self) -> None:
        """Look again: partitions, positions or the room in the buffers have changed."""
        cache = self._cluster.cache
        with self._state.condition:
            partitions = self._state.partitions
            lost = any(p.position is None and p.error is None for p in partitions.values())
            nodes = {self._node_of(tp, entry) for tp, entry in partitions.items()}
            gone = cache.required_epochs.keys() - partitions.keys()
        for place in gone:
            cache.drop_required_epoch(*place)
        if lost:
            self._offsets.start()
        for node_id in nodes:
            if node_id not in cache.brokers:
                self._request_metadata()
                continue
            if node_id not in self._nodes or self._nodes[node_id].done():
                self._wakes[node_id] = asyncio.Event()
                self._nodes[node_id] = asyncio.create_task(self._serve(node_id))
            self._wakes[node_id].set()

    def _node_of(self, tp: TopicPartition, entry: PartitionFetchState) -> int:
        """The node to fetch a partition from; -1 while it has no leader."""
        cache = self._cluster.cache
        if entry.required_epoch >= 0:
            cache.require_epoch(*tp, entry.required_epoch)
            entry.required_epoch = -1
        if tp in cache.required_epochs:
            return NO_LEADER  # nor the preferred read replica of a former leader
        leader = cache.leader(*tp)
        node_id = entry.read_node(leader, self._cluster.clock.monotonic())
        return node_id if node_id in cache.brokers else leader

    def _wake_later(self, delay_s: float) -> None:
        loop = asyncio.get_running_loop()
        if self._retry is not None:
            if self._retry.when() <= loop.time() + delay_s:
                return
            self._retry.cancel()

        def fire() -> None:
            self._retry = None
            self.wake()

        self._retry = loop.call_later(delay_s, fire)

    def _request_metadata(self) -> None:
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh())

    async def _refresh(self) -> None:
        """Every second time another broker is asked first: one that is partitioned from the others
        names former leaders, and its connection looks as good as any."""
        with self._state.condition:
            topics = {tp.topic for tp in self._state.partitions}
        self._refreshes += 1
        alternate = self._refreshes % 2 == 0 or bool(self._cluster.cache.required_epochs)
        tries = 0
        try:
            await self._cluster.refresh(topics, alternate=alternate)
            tries = self._check_stale()
        except KafkaError:
            pass  # the next wake-up tries again
        await asyncio.sleep(self._cluster.backoff_s(min(tries, STALE_BACKOFFS)))
        self._wake_later(0)

    def _check_stale(self) -> int:
        """After a metadata response: how many in a row lacked a required leader epoch."""
        cache, now = self._cluster.cache, self._cluster.clock.monotonic()
        tries, given_up = self._stale.on_response(cache.required_epochs, len(cache.brokers), now)
        for place in given_up:
            log.warning(
                "%s-%d: an offset has leader epoch %d, and no broker has known one as new for "
                "%.0f s: reading from the leader all the same. Was the topic created again?",
                *(*place, cache.required_epochs[place]),
                self._options.stale_leader_timeout_ms / 1000,
            )
            self._drop_epoch(TopicPartition(*place))
        return tries

    def _drop_epoch(self, tp: TopicPartition) -> None:
        self._cluster.cache.drop_required_epoch(*tp)
        with self._state.condition:
            if tp in self._state.partitions:
                self._state.partitions[tp].leader_epoch = -1  # it is not committed again

    def note_outages(self, outages: OutageLog) -> set[str]:
        """Note the partitions that cannot be read now; their names."""
        found: set[str] = set()
        with self._state.condition:
            for tp, entry in self._state.partitions.items():
                cause = None if entry.is_paused else self._cause(tp, entry)
                if cause is not None:
                    code, text, detail, since = cause
                    name = f"{tp.topic}-{tp.partition}"
                    outages.note(name, code, text, detail, since=since)
                    found.add(name)
        return found

    def _cause(
        self, tp: TopicPartition, entry: PartitionFetchState
    ) -> tuple[ErrorCode, str, str, float | None] | None:
        """(code, cause, detail, since when if that is known) of what keeps a partition from being
        read; None if nothing does."""
        cache = self._cluster.cache
        detail = "" if entry.failure is None else str(entry.failure) or "no response in time"
        if tp in cache.required_epochs:
            text = f"no broker knows a leader of epoch {cache.required_epochs[tp]}"
            return ErrorCode.UNKNOWN_LEADER_EPOCH, text, detail, None
        node_id = self._node_of(tp, entry)
        if node_id == NO_LEADER:
            code = cache.errors.get(tp.topic, ErrorCode.LEADER_NOT_AVAILABLE)
            return code, f"the partition has no leader ({code.name})", detail, None
        unreachable = self._cluster.unreachable.get(node_id)
        if unreachable is not None:
            text = f"broker {node_id} is not reachable"
            return ErrorCode.NETWORK_EXCEPTION, text, unreachable.reason, unreachable.since
        due = self._due_at.get(node_id)
        if due is not None and self._cluster.clock.monotonic() - due >= LATE_RESPONSE_S:
            text = f"no response from broker {node_id}"
            return ErrorCode.REQUEST_TIMED_OUT, text, detail, due
        if entry.failure is None:
            return None
        code = getattr(entry.failure, "code", ErrorCode.NETWORK_EXCEPTION)
        return code, f"broker {node_id} fails ({code.name})", detail, entry.failing_since

    async def _serve(self, node_id: int) -> None:
        """Fetch from one broker while it has assigned partitions."""
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
            except (OSError, SchemaError, ValueError, KafkaError) as e:
                self._on_failure(wanted, e)
                self._release(wanted)
                self._request_metadata()
                await asyncio.sleep(self._cluster.backoff_s(attempt))
                attempt += 1

    def _wanted(self, node_id: int) -> tuple[dict[TopicPartition, tuple[int, int]], bool, bool]:
        """({partition: (offset, stamp)} to fetch; whether others are left out; whether the broker
        has any)."""
        now = self._cluster.clock.monotonic()
        room = BUFFERED_FETCHES * self._options.max_partition_fetch_bytes
        wanted: dict[TopicPartition, tuple[int, int]] = {}
        is_partial = has_any = False
        with self._state.condition:
            for tp, entry in self._state.partitions.items():
                if self._node_of(tp, entry) != node_id:
                    continue
                has_any = True
                if entry.position is None or entry.is_paused or entry.error is not None:
                    continue
                if not self._state.reads(tp.topic):
                    continue
                if entry.not_before > now:
                    is_partial = True
                    self._wake_later(entry.not_before - now)
                elif entry.buffered_bytes >= room:
                    is_partial = True
                elif not entry.in_flight:
                    entry.in_flight = True
                    wanted[tp] = (entry.fetch_offset, entry.stamp)
        return wanted, is_partial, has_any

    def _on_failure(self, wanted: dict[TopicPartition, tuple[int, int]], error: Exception) -> None:
        """The broker did not answer: read from the leaders."""
        with self._state.condition:
            for tp in wanted:
                entry = self._state.partitions.get(tp)
                if entry is not None:
                    entry.prefer_replica(NO_REPLICA, 0.0)
                    entry.failure = error

    def _release(self, wanted: dict[TopicPartition, tuple[int, int]]) -> None:
        with self._state.condition:
            for tp, (_, stamp) in wanted.items():
                entry = self._state.partitions.get(tp)
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
                partition_max_bytes=self._options.max_partition_fetch_bytes,
            )
            by_topic.setdefault(tp.topic, []).append(row)
        ids: dict[str, UUID] = {}
        for name in by_topic:
            topic = self._cluster.cache.topics.get(name)
            ids[name] = ZERO_UUID if topic is None else topic.topic_id
        if ZERO_UUID in ids.values():
            version = min(version, NAMES_FETCH_VERSION)
        request = FetchRequest(
            max_wait_ms=BUSY_WAIT_MS if is_partial else self._options.fetch_max_wait_ms,
            min_bytes=self._options.fetch_min_bytes,
            max_bytes=self._options.fetch_max_bytes,
            isolation_level=self._options.isolation_level,
            topics=tuple(
                FetchTopic(topic=name, topic_id=ids[name], partitions=tuple(rows))
                for name, rows in by_topic.items()
            ),
            rack_id=self._options.client_rack,
        )
        began = self._cluster.clock.monotonic()
        self._due_at[node_id] = began + request.max_wait_ms / 1000 + connection.throttled_s
        try:
            reply = await self._cluster.call_on(connection, request, FetchResponse, version=version)
        finally:
            del self._due_at[node_id]
        self._count(self._cluster.clock.monotonic() - began)
        if reply.error_code:
            raise kafka_error(reply.error_code, f"fetch from broker {node_id}")
        for endpoint in reply.node_endpoints:
            self._cluster.cache.add_broker(
                Broker(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
            )
        self._apply(wanted, reply.responses, {v: k for k, v in ids.items()})

    def _count(self, latency_s: float) -> None:
        counters = self.counters
        counters.fetches += 1
        counters.latency_sum_s += latency_s
        counters.latency_max_s = max(counters.latency_max_s, latency_s)

    def _apply(
        self,
        wanted: dict[TopicPartition, tuple[int, int]],
        answers: tuple[FetchableTopicResponse, ...],
        names: dict[UUID, str],
    ) -> None:
        is_changed = False
        with self._state.condition:
            for topic in answers:
                name = topic.topic or names.get(topic.topic_id, "")
                for answer in topic.partitions:
                    tp = TopicPartition(name, answer.partition_index)
                    entry, requested = self._state.partitions.get(tp), wanted.get(tp)
                    if entry is None or requested is None or entry.stamp != requested[1]:
                        continue  # a seek or an assignment came in between
                    is_changed |= self._apply_one(tp, entry, requested, answer)
            if is_changed:
                self._state.notify_locked()
        self._release(wanted)

    def _apply_one(
        self,
        tp: TopicPartition,
        entry: PartitionFetchState,
        requested: tuple[int, int],
        answer: PartitionData,
    ) -> bool:
        """True when there are records, or an error, for the caller's poll."""
        if answer.error_code:
            after = self._refusals.refused(tp, entry, answer)
            if after is AfterRefusal.FETCH_AGAIN:
                self._wake_later(0)
            elif after is AfterRefusal.REFRESH_METADATA:
                self._request_metadata()
            return entry.error is not None
        entry.high_watermark = answer.high_watermark
        entry.last_stable_offset = answer.last_stable_offset
        entry.log_start_offset = answer.log_start_offset
        if answer.preferred_read_replica != NO_REPLICA:
            lease_s = self._cluster.options.metadata_max_age_ms / 1000
            until = self._cluster.clock.monotonic() + lease_s
            entry.prefer_replica(answer.preferred_read_replica, until)
            self._wake_later(0)
        records = memoryview(answer.records or b"")
        next_offset, end, epoch = next_offset_after(records, requested[0])
        if not end and len(records):
            limit = self._options.max_partition_fetch_bytes
            text = (
                f"{tp.topic}-{tp.partition} at offset {requested[0]}: no whole batch in the first "
                f"{limit} bytes"
            )
            entry.error = kafka_error(ErrorCode.RECORD_LIST_TOO_LARGE, text)
            return True
        aborted = [(a.producer_id, a.first_offset) for a in answer.aborted_transactions or ()]
        self.counters.bytes_fetched += end
        fetch = CompletedFetch(records[:end], requested[0], next_offset, aborted, epoch)
        return entry.add_fetch(fetch, requested[1]) and end > 0
