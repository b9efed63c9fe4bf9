"""The consumer's shell around the group machine: join, heartbeats, commits; on the loop.

Rebalances are asked for here (`rejoin_needed`) but happen in the caller's `poll`, so that no
partition is taken away while its records are being processed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from headwater.client.admin.groups import fetch_group_offsets
from headwater.client.cluster import Cluster
from headwater.client.core.classic_group import GroupMachine, Step, decode_assignment
from headwater.client.errors import CommitFailedError, KafkaTimeoutError, error_code, kafka_error
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headwater.wire.apis.k11_join_group import JoinGroupResponse
from headwater.wire.apis.k12_heartbeat import HeartbeatResponse
from headwater.wire.apis.k13_leave_group import LeaveGroupResponse
from headwater.wire.apis.k14_sync_group import SyncGroupResponse
from headwater.wire.schema import SchemaError

GROUP_LANE = "group"
NAMES_COMMIT_VERSION = 9
"""The last OffsetCommit version that names topics."""
JOIN_MARGIN_MS = 5_000


class Membership:
    """One member's life in its group."""

    def __init__(
        self,
        cluster: Cluster,
        machine: GroupMachine,
        *,
        heartbeat_interval_ms: int,
        rebalance_timeout_ms: int,
        max_poll_interval_ms: int,
        on_change: Callable[[], None],
    ) -> None:
        self.machine = machine
        self.rejoin_needed = True
        self.error: Exception | None = None
        self.last_poll = cluster.clock.monotonic()
        self._cluster = cluster
        self._heartbeat_s = heartbeat_interval_ms / 1000
        self._join_timeout_s = (rebalance_timeout_ms + JOIN_MARGIN_MS) / 1000
        self._max_poll_s = max_poll_interval_ms / 1000
        self._on_change = on_change
        self._coordinator = -1
        self._heartbeats: asyncio.Task[None] | None = None
        self._topics: list[str] = []
        self._pattern: re.Pattern[str] | None = None
        self._seen_counts: dict[str, int] = {}

    def subscribe(self, topics: list[str], pattern: re.Pattern[str] | None) -> None:
        """What to join with from now on."""
        self._topics, self._pattern = topics, pattern
        self.rejoin_needed = True

    async def coordinator(self) -> int:
        """The coordinator's node, looked up when it is not known. Raises KafkaError, OSError."""
        if self._coordinator not in self._cluster.cache.brokers:
            self._coordinator = await self._cluster.coordinator(self.machine.group_id)
        return self._coordinator

    def _lose_coordinator(self) -> None:
        self._coordinator = -1

    async def _subscribed(self) -> list[str]:
        """The topics to join with; a pattern is matched against what exists now."""
        if self._pattern is None:
            await self._cluster.refresh(self._topics, auto_create=True)
            return self._topics
        await self._cluster.refresh(None)
        pattern = self._pattern
        return sorted(
            t.name
            for t in self._cluster.cache.topics.values()
            if pattern.fullmatch(t.name) and not t.is_internal
        )

    def _counts(self, topics: list[str]) -> dict[str, int]:
        known = self._cluster.cache.topics
        return {t: len(known[t].partitions) for t in topics if t in known}

    async def join(self, owned: list[TopicPartition]) -> list[TopicPartition]:
        """Join and sync until stable; the assignment. Raises KafkaError that no retry cures."""
        self.rejoin_needed = False
        attempt = 0
        while True:
            step = Step.WAIT
            try:
                step, assignment = await self._join_once(owned)
                if step is Step.STABLE:
                    self._start_heartbeats()
                    return assignment
            except (OSError, SchemaError) as e:
                self.error = e
                self._lose_coordinator()
            except KafkaError as e:
                if not e.retriable:
                    raise
                self._lose_coordinator()
            if step is Step.FAIL:
                code = self.machine.error
                raise kafka_error(code, f"joining group {self.machine.group_id}")
            if step is Step.FIND_COORDINATOR:
                self._lose_coordinator()
            if step is not Step.JOIN_AGAIN:
                await asyncio.sleep(self._cluster.backoff_s(attempt))
                attempt += 1

    async def _join_once(self, owned: list[TopicPartition]) -> tuple[Step, list[TopicPartition]]:
        machine = self.machine
        topics = await self._subscribed()
        self._seen_counts = self._counts(topics)
        node = await self.coordinator()
        connection = await self._cluster.connection(node, GROUP_LANE)
        reply = await self._cluster.call_over(
            connection,
            machine.join_request(topics, owned),
            JoinGroupResponse,
            timeout_s=self._join_timeout_s,
        )
        step = machine.on_join(reply)
        if step is not Step.SYNC:
            return step, []
        counts: dict[str, int] = {}
        if machine.is_leader:
            wanted = sorted(machine.group_topics)
            await self._cluster.refresh(wanted)
            counts = self._counts(wanted)
            self._seen_counts = {**self._seen_counts, **counts}
        answer = await self._cluster.call_over(
            connection,
            machine.sync_request(counts),
            SyncGroupResponse,
            timeout_s=self._join_timeout_s,
        )
        step = machine.on_sync(answer)
        if step is not Step.STABLE:
            return step, []
        return step, decode_assignment(answer.assignment)

    def _start_heartbeats(self) -> None:
        if self._heartbeats is not None:
            self._heartbeats.cancel()
        self._heartbeats = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        """Heartbeat until membership changes; watch the topics on the side."""
        clock = self._cluster.clock
        refreshed = clock.monotonic()
        while not self.rejoin_needed:
            await asyncio.sleep(self._heartbeat_s)
            if clock.monotonic() - self.last_poll > self._max_poll_s:
                await self.leave("poll was not called within max_poll_interval_ms")
                self._ask_to_rejoin()
                return
            try:
                await self._beat_once()
                if clock.monotonic() - refreshed > self._cluster.options.metadata_max_age_ms / 1000:
                    refreshed = clock.monotonic()
                    await self._watch_topics()
            except (OSError, KafkaError, SchemaError):
                self._lose_coordinator()

    async def _beat_once(self) -> None:
        node = await self.coordinator()
        connection = await self._cluster.connection(node, GROUP_LANE)
        reply = await self._cluster.call_over(
            connection,
            self.machine.heartbeat_request(),
            HeartbeatResponse,
            timeout_s=self._heartbeat_s * 3,
        )
        step = self.machine.on_heartbeat(reply.error_code)
        if step is Step.JOIN_AGAIN:
            self._ask_to_rejoin()
        elif step is Step.FIND_COORDINATOR:
            self._lose_coordinator()
        elif step is Step.FAIL:
            self.error = kafka_error(reply.error_code, f"heartbeat to {self.machine.group_id}")
            self._ask_to_rejoin()

    async def _watch_topics(self) -> None:
        """New partitions, or new topics for a pattern, call for a rebalance."""
        topics = await self._subscribed()
        watched = set(topics) | (self.machine.group_topics if self.machine.is_leader else set())
        await self._cluster.refresh(sorted(watched))
        if self._counts(sorted(watched)) != self._seen_counts:
            self._ask_to_rejoin()

    def _ask_to_rejoin(self) -> None:
        self.rejoin_needed = True
        self._on_change()

    async def leave(self, reason: str) -> None:
        """Leave at once, so that the others need not wait for the session timeout.

        A static member stays on the books until its session ends (KIP-345).
        """
        if self._heartbeats is not None and self._heartbeats is not asyncio.current_task():
            self._heartbeats.cancel()
        machine = self.machine
        if machine.member_id and machine.group_instance_id is None:
            try:
                node = await self.coordinator()
                # Not the group's lane: a join may be parked there.
                connection = await self._cluster.connection(node)
                await connection.call(
                    machine.leave_request(reason), LeaveGroupResponse, timeout_s=5.0
                )
            except (OSError, KafkaError, SchemaError):
                pass  # the session timeout does it then
        machine.reset()

    async def commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], timeout_ms: int
    ) -> None:
        """OffsetCommit. Raises CommitFailedError when the group moved on, KafkaTimeoutError."""
        if offsets:
            await self._cluster.retrying(
                f"commit for group {self.machine.group_id}",
                lambda: self._commit_once(offsets),
                timeout_ms,
                fatal=frozenset({ErrorCode.REBALANCE_IN_PROGRESS}),
            )

    async def _commit_once(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        machine = self.machine
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for tp, entry in offsets.items():
            row = OffsetCommitRequestPartition(
                partition_index=tp.partition,
                committed_offset=entry.offset,
                committed_leader_epoch=entry.leader_epoch,
                committed_metadata=entry.metadata,
            )
            by_topic.setdefault(tp.topic, []).append(row)
        request = OffsetCommitRequest(
            group_id=machine.group_id,
            generation_id_or_member_epoch=machine.generation,
            member_id=machine.member_id if machine.generation >= 0 else "",
            group_instance_id=machine.group_instance_id if machine.generation >= 0 else None,
            topics=tuple(
                OffsetCommitRequestTopic(name=name, partitions=tuple(rows))
                for name, rows in by_topic.items()
            ),
        )
        node = await self.coordinator()
        connection = await self._cluster.connection(node)
        version = connection.version_for(OffsetCommitRequest, NAMES_COMMIT_VERSION)
        reply = await self._cluster.call_over(
            connection, request, OffsetCommitResponse, version=version
        )
        for topic in reply.topics:
            for answer in topic.partitions:
                if answer.error_code:
                    self._refuse_commit(answer.error_code, topic.name, answer.partition_index)

    def _refuse_commit(self, code_value: int, topic: str, partition: int) -> None:
        code = error_code(code_value)
        where = f"commit of {topic}-{partition} for group {self.machine.group_id}"
        lost = (
            ErrorCode.ILLEGAL_GENERATION,
            ErrorCode.UNKNOWN_MEMBER_ID,
            ErrorCode.GROUP_ID_NOT_FOUND,
        )
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._lose_coordinator()
        if code in lost or code == ErrorCode.FENCED_INSTANCE_ID:
            self._ask_to_rejoin()
            raise CommitFailedError(f"{where}: {code.name}, the group has rebalanced")
        raise kafka_error(code_value, where)

    async def committed(
        self, partitions: list[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """OffsetFetch; partitions without a commit are left out. Raises KafkaTimeoutError."""

        async def attempt() -> dict[TopicPartition, OffsetAndMetadata]:
            node = await self.coordinator()
            try:
                return await fetch_group_offsets(
                    self._cluster, node, self.machine.group_id, partitions
                )
            except KafkaError as e:
                if e.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                    self._lose_coordinator()
                raise
            except (OSError, KafkaTimeoutError):
                self._lose_coordinator()
                raise

        what = f"offsets of group {self.machine.group_id}"
        return await self._cluster.retrying(what, attempt, timeout_ms)
