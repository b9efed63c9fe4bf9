"""A consumer's membership in its group, on the loop: join, heartbeats, offset commits.

A rebalance is only requested here (`rejoin_needed`). It happens in the caller's `poll`, so that no
partition is revoked while its records are being processed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headwater.client.cluster import Cluster
from headwater.client.consumer_options import ConsumerOptions
from headwater.client.core.classic_group import ClassicMember, NextAction, decode_assignment
from headwater.client.errors import kafka_error
from headwater.client.group_link import GROUP_LANE, LEAVE_TIMEOUT_S, GroupLink
from headwater.client.topic_watch import TopicWatch
from headwater.client.values import TopicPartition
from headwater.errors import KafkaError
from headwater.wire.apis.k11_join_group import JoinGroupResponse
from headwater.wire.apis.k12_heartbeat import HeartbeatResponse
from headwater.wire.apis.k13_leave_group import LeaveGroupResponse
from headwater.wire.apis.k14_sync_group import SyncGroupResponse
from headwater.wire.schema import SchemaError

JOIN_MARGIN_MS = 5_000


class ClassicMembership(GroupLink):
    """One member of a group in the classic protocol."""

    def __init__(
        self,
        cluster: Cluster,
        options: ConsumerOptions,
        member: ClassicMember,
        watch: TopicWatch,
        on_change: Callable[[], None],
    ) -> None:
        """`on_change` is called when a rejoin is needed."""
        super().__init__(cluster, member)
        self.member = member
        self.rejoin_needed = True
        self._heartbeat_s = options.heartbeat_interval_ms / 1000
        self._join_timeout_s = (options.max_poll_interval_ms + JOIN_MARGIN_MS) / 1000
        self._max_poll_s = options.max_poll_interval_ms / 1000
        self._watch = watch
        self._on_change = on_change
        self._heartbeats: asyncio.Task[None] | None = None
        self._seen_counts: dict[str, int] = {}

    async def join(self, owned: list[TopicPartition]) -> list[TopicPartition]:
        """Join and sync until the group is stable; the assignment.

        Raises KafkaError for an error that no retry can cure.
        """
        self.rejoin_needed = False
        attempt, losses = 0, self.member.losses
        while True:
            action = NextAction.WAIT
            try:
                still_owned = owned if losses == self.member.losses else []
                action, assignment = await self._join_once(still_owned)
                if action is NextAction.STABLE:
                    self._failure = None
                    self.rebalances += 1
                    self._start_heartbeats()
                    return assignment
            except (OSError, SchemaError) as e:
                self._failure = e
                self._lose_coordinator()
            except KafkaError as e:
                if not e.retriable:
                    raise
                self._failure = e
                self._lose_coordinator()
            if action is NextAction.FAIL:
                raise kafka_error(self.member.error, f"joining group {self.member.group_id}")
            if action is NextAction.FIND_COORDINATOR:
                self._failure = kafka_error(self.member.error, "JoinGroup")
                self._lose_coordinator()
            if action is not NextAction.JOIN_AGAIN:
                await asyncio.sleep(self._cluster.backoff_s(attempt))
                attempt += 1

    async def _join_once(
        self, owned: list[TopicPartition]
    ) -> tuple[NextAction, list[TopicPartition]]:
        member = self.member
        await self._watch.refresh()
        topics = self._watch.topics()
        self._seen_counts = self._watch.counts(topics)
        node = await self.coordinator()
        connection = await self._cluster.connection(node, GROUP_LANE)
        joined = await self._cluster.call_on(
            connection,
            member.join_request(topics, owned),
            JoinGroupResponse,
            timeout_s=self._join_timeout_s,
        )
        action = member.on_join(joined)
        if action is not NextAction.SYNC:
            return action, []
        counts: dict[str, int] = {}
        if member.is_leader:
            wanted = sorted(member.group_topics)
            await self._cluster.refresh(wanted)
            counts = self._watch.counts(wanted)
            self._seen_counts = {**self._seen_counts, **counts}
        synced = await self._cluster.call_on(
            connection,
            member.sync_request(counts),
            SyncGroupResponse,
            timeout_s=self._join_timeout_s,
        )
        action = member.on_sync(synced)
        if action is not NextAction.STABLE:
            return action, []
        return action, decode_assignment(synced.assignment)

    def _start_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
        self._heartbeats = asyncio.create_task(self._send_heartbeats())

    async def _send_heartbeats(self) -> None:
        """Send heartbeats until a rejoin is needed, and refresh the topics from time to time."""
        clock = self._cluster.clock
        refreshed = clock.monotonic()
        while not self.rejoin_needed:
            await asyncio.sleep(self._heartbeat_s)
            if await self._left_for_want_of_poll(self._max_poll_s):
                self._request_rejoin()
                return
            try:
                await self._send_heartbeat()
                if clock.monotonic() - refreshed >= self._watch.interval_s:
                    refreshed = clock.monotonic()
                    await self._check_topics()
            except (OSError, KafkaError, SchemaError) as e:
                self._failure = e
                self._lose_coordinator()

    async def _send_heartbeat(self) -> None:
        node = await self.coordinator()
        connection = await self._cluster.connection(node, GROUP_LANE)
        response = await self._cluster.call_on(
            connection,
            self.member.heartbeat_request(),
            HeartbeatResponse,
            timeout_s=self._heartbeat_s * 3,
        )
        action = self.member.on_heartbeat(response.error_code)
        if action is NextAction.FIND_COORDINATOR:
            self._failure = kafka_error(response.error_code, "Heartbeat")
            self._lose_coordinator()
            return
        self._failure = None
        if action in (NextAction.JOIN_AGAIN, NextAction.FAIL):
            self._request_rejoin()

    async def _check_topics(self) -> None:
        """New partitions, or new topics that match the pattern, need a rebalance."""
        others = self.member.group_topics if self.member.is_leader else set()
        await self._watch.refresh(others)
        if self._watch.counts({*self._watch.topics(), *others}) != self._seen_counts:
            self._request_rejoin()

    def _request_rejoin(self) -> None:
        self.rejoin_needed = True
        self._on_change()

    def stop(self) -> None:
        """Send no more heartbeats."""
        if self._heartbeats is not None:
            self._heartbeats.cancel()

    async def leave(self, reason: str) -> None:
        """Leave at once, so that the other members need not wait for the session timeout.

        A static member stays in the group until its session times out (KIP-345).
        """
        if self._heartbeats is not None and self._heartbeats is not asyncio.current_task():
            self._heartbeats.cancel()
        self._failure = None
        member = self.member
        if member.member_id and member.group_instance_id is None:
            try:
                node = await self.coordinator()
                # Not on the group's lane: a JoinGroup may be parked there.
                connection = await self._cluster.connection(node)
                await connection.call(
                    member.leave_request(reason), LeaveGroupResponse, timeout_s=LEAVE_TIMEOUT_S
                )
            except (OSError, KafkaError, SchemaError):
                pass  # the session timeout removes the member
        member.reset()
