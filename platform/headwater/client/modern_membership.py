"""A consumer's membership in a group of the consumer protocol (KIP-848), on the loop: heartbeats.

The coordinator's target is only offered here (`offered`). It is taken in the caller's `poll`, so
that no partition is revoked while its records are being processed, and acknowledged afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar
from uuid import UUID

from headwater.client.cluster import Cluster
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.core.consumer_group import Beat, ConsumerMember, Terms, by_topic
from headwater.client.errors import CommitFailedError, kafka_error
from headwater.client.group_link import GROUP_LANE, LEAVE_TIMEOUT_S, GroupLink
from headwater.client.group_offsets import GroupOffsets
from headwater.client.topic_watch import TopicWatch
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from headwater.wire.schema import SchemaError

PATTERN_VERSION = 1
"""The first ConsumerGroupHeartbeat version with patterns."""
FIRST_INTERVAL_S = 5.0
STALE_TRIES = 20
_STALE = frozenset({ErrorCode.STALE_MEMBER_EPOCH})
_UNKNOWN = frozenset({ErrorCode.UNKNOWN_MEMBER_ID})
"""The heartbeats find out that the membership is lost, and join again."""
T = TypeVar("T")


class ConsumerMembership(GroupLink):
    """One member of a group that the coordinator assigns partitions to."""

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        member: ConsumerMember,
        watch: TopicWatch,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called when there is something for the caller to do."""
        super().__init__(cluster, member)
        self.member = member
        self.offered: list[TopicPartition] | None = None
        """A target that the caller has not taken yet."""
        self.is_lost = False
        """The partitions belong to others already: the caller has to give them up."""
        self.error: KafkaError | None = None
        """What ended the heartbeats, until `poll` raises it."""
        self._options = options
        self._watch = watch
        self._on_change = on_change
        self._heartbeats: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._beaten = asyncio.Event()
        self._known: frozenset[tuple[UUID, int]] | None = None
        """What was offered last."""
        self._ids: dict[str, UUID] = {}
        """Topic ids of what was offered last."""

    @property
    def is_running(self) -> bool:
        """Whether heartbeats are sent."""
        return self._heartbeats is not None and not self._heartbeats.done()

    @property
    def has_news(self) -> bool:
        """Whether the caller has something to do."""
        is_told = self.is_lost or self.error is not None or self.offered is not None
        return is_told or not self.is_running

    async def start(self) -> None:
        """Join, and send heartbeats from now on."""
        if not self.is_running:
            self._heartbeats = asyncio.create_task(self._send_heartbeats())

    def wake(self) -> None:
        """Send a heartbeat now: the subscription has changed."""
        self._wake.set()

    async def acknowledge(self, owned: list[TopicPartition]) -> None:
        """The caller owns these partitions, of those offered, and no others."""
        pairs = [(self._ids[tp.topic], tp.partition) for tp in owned if tp.topic in self._ids]
        self.member.acknowledge(by_topic(pairs))
        self.rebalances += 1
        self._wake.set()

    def _terms(self) -> Terms:
        pattern = self._watch.server_pattern
        return Terms(
            topics=() if pattern is not None else tuple(self._watch.topics()),
            pattern=pattern,
            assignor=self._options.group_remote_assignor,
            rebalance_timeout_ms=self._options.max_poll_interval_ms,
            rack_id=self._options.client_rack or None,
        )

    async def _send_heartbeats(self) -> None:
        attempt = 0
        while True:
            if await self._left_for_want_of_poll(self._options.max_poll_interval_ms / 1000):
                self._lose()
                return
            self._wake.clear()
            pause_s = self._cluster.backoff_s(attempt)
            attempt += 1
            try:
                beat = await self._beat()
                if beat is Beat.GOOD:
                    attempt, pause_s = 0, self._interval_s
                    await self._offer()
                    self._failure = None
                    self._beaten.set()
                elif beat is Beat.FENCED:
                    self._lose()
                elif beat is Beat.FAIL:
                    member = self.member
                    what = f"group {member.group_id}: {member.message}"
                    self._end(kafka_error(member.error, what.removesuffix(": ")))
                    return
                else:
                    self._failure = kafka_error(self.member.error, "ConsumerGroupHeartbeat")
                    self._lose_coordinator()
            except (OSError, SchemaError) as e:
                self._lost_reply(e)
            except KafkaError as e:
                if not e.retriable:
                    self._end(e)
                    return
                self._lost_reply(e)
            await self._sleep(pause_s)

    @property
    def _interval_s(self) -> float:
        interval = self.member.interval_ms
        return FIRST_INTERVAL_S if not interval or interval < 0 else interval / 1000

    async def _sleep(self, seconds: float) -> None:
        """Until then, or until there is something to say."""
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass  # the time for the next heartbeat

    async def _beat(self) -> Beat:
        if self.member.generation < 0:
            await self._watch.refresh()
        terms = self._terms()
        node = await self.coordinator()
        connection = await self._cluster.connection(node, GROUP_LANE)
        try:
            version = connection.version_for(ConsumerGroupHeartbeatRequest)
        except KafkaError as e:
            raise KafkaError(e.code, f"{e.detail}; use group_protocol='classic'") from e
        if terms.pattern is not None and version < PATTERN_VERSION:
            text = "the coordinator resolves no patterns: subscribe to topics by name"
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, text)
        reply = await self._cluster.call_on(
            connection,
            self.member.heartbeat_request(terms),
            ConsumerGroupHeartbeatResponse,
            version=version,
        )
        return self.member.on_heartbeat(reply)

    def _lost_reply(self, error: Exception) -> None:
        self._failure = error
        self.member.on_lost_reply()
        self._lose_coordinator()

    async def _offer(self) -> None:
        """Offer the target, once, of the topics whose names are known."""
        target = self.member.target
        if target is None:
            return
        if any(topic not in self._cluster.cache.names for topic in target):
            await self._watch.refresh()
        names = self._cluster.cache.names
        pairs = frozenset((t, p) for t, numbers in target.items() if t in names for p in numbers)
        if pairs == self._known:
            return
        self._known = pairs
        self._ids = {names[topic]: topic for topic, _ in pairs}
        self.offered = sorted(TopicPartition(names[topic], number) for topic, number in pairs)
        self._on_change()

    def _lose(self) -> None:
        """The partitions are others' already."""
        self._known, self.offered = None, None
        self.is_lost = True
        self._beaten.set()
        self._on_change()

    def _end(self, error: KafkaError) -> None:
        self.member.reset()
        self._failure = self.error = error
        self._lose()

    def _request_rejoin(self) -> None:
        self.member.reset()
        self._lose()
        self._wake.set()

    def stop(self) -> None:
        """Send no more heartbeats."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()

    async def leave(self, reason: str) -> None:
        """Leave at once; a static member says that it comes back. `reason` goes to no broker."""
        if self._heartbeats is not asyncio.current_task():
            self.stop()
        self._failure = None
        member = self.member
        if member.generation >= 0:
            try:
                node = await self.coordinator()
                connection = await self._cluster.connection(node)
                await connection.call(
                    member.leave_request(),
                    ConsumerGroupHeartbeatResponse,
                    timeout_s=LEAVE_TIMEOUT_S,
                )
            except (OSError, KafkaError, SchemaError):
                pass  # the session timeout removes the member
        member.reset()
        self._known = self.offered = self.error = None
        self.is_lost = False
        self._beaten.set()  # no heartbeat comes that somebody could wait for

    async def commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], timeout_ms: float
    ) -> None:
        """Commit offsets; once more after the next heartbeat, if the epoch has just changed.

        Raises CommitFailedError after a rebalance, KafkaTimeoutError.
        """
        commit = partial(super().commit, offsets, timeout_ms)
        try:
            await self._in_an_epoch(commit, _STALE, timeout_ms)
        except KafkaError as e:
            if e.code is not ErrorCode.STALE_MEMBER_EPOCH:
                raise
            text = f"commit for group {self.member.group_id}: the coordinator has a newer epoch"
            raise CommitFailedError(text) from None

    async def committed(self, partitions: list[TopicPartition], timeout_ms: float) -> GroupOffsets:
        """See GroupLink; once more after the next heartbeat, if the epoch has just changed."""
        read = partial(super().committed, partitions, timeout_ms)
        return await self._in_an_epoch(read, _STALE | _UNKNOWN, timeout_ms)

    def _asking_member(self) -> tuple[str, int] | None:
        member = self.member
        return (member.member_id, member.generation) if member.generation >= 0 else None

    async def _in_an_epoch(
        self, call: Callable[[], Awaitable[T]], stale: frozenset[ErrorCode], timeout_ms: float
    ) -> T:
        """The result of `call`, which is refused with a `stale` error in an epoch that is over."""
        for left in reversed(range(STALE_TRIES)):
            epoch = self.member.generation
            self._beaten.clear()
            try:
                return await call()
            except KafkaError as e:
                if e.code not in stale or not left:
                    raise
                if self.member.generation == epoch:
                    self._wake.set()
                    if not await self._heard(timeout_ms):
                        raise
        raise AssertionError("the last try returns or raises")

    async def _heard(self, timeout_ms: float) -> bool:
        """Wait until a heartbeat may have changed the epoch; False when the time is up."""
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._beaten.wait()
        except TimeoutError:
            return False
        return True
