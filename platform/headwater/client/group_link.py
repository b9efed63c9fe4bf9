"""A consumer's link to its group's coordinator: finding it, committed offsets, outages.

The memberships of both group protocols build on it.
"""

from __future__ import annotations

from typing import Protocol

from headwater.client.cluster import Cluster
from headwater.client.errors import CommitFailedError, KafkaTimeoutError, error_code, kafka_error
from headwater.client.group_offsets import GroupOffsets, fetch_group_offsets
from headwater.client.outages import OutageLog
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

GROUP_LANE = "group"
LEAVE_TIMEOUT_S = 5.0
NAMES_COMMIT_VERSION = 9
"""The last OffsetCommit version with topic names."""
_LOST_MEMBERSHIP = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)


class Member(Protocol):
    """One member of a group, as the coordinator knows it."""

    group_id: str
    group_instance_id: str | None
    member_id: str
    generation: int
    """Or its epoch (KIP-848); negative while it is no member."""


class GroupLink:
    """What a membership is to its coordinator, whatever the protocol."""

    def __init__(self, cluster: Cluster, identity: Member) -> None:
        self.identity = identity
        self.last_poll = cluster.clock.monotonic()
        self.rebalances = 0
        self.commits = 0
        self._cluster = cluster
        self._failure: Exception | None = None
        """The last error of a join or heartbeat, until one succeeds."""
        self._coordinator = -1

    def stop(self) -> None:
        """Send no more heartbeats."""
        raise NotImplementedError

    async def leave(self, reason: str) -> None:
        """Leave at once, so that the other members need not wait for the session timeout."""
        raise NotImplementedError

    async def _left_for_want_of_poll(self, max_poll_s: float) -> bool:
        """Leave if `poll` was not called for so long (`max.poll.interval.ms`): this consumer may
        hang, and others shall get its partitions."""
        if self._cluster.clock.monotonic() - self.last_poll <= max_poll_s:
            return False
        await self.leave("poll was not called within max_poll_interval_ms")
        return True

    def _request_rejoin(self) -> None:
        """A commit has shown that the membership is lost."""
        raise NotImplementedError

    def note_outages(self, outages: OutageLog) -> set[str]:
        """Note that the coordinator does not answer, if that is so; the group's name then."""
        error = self._failure
        if error is None:
            return set()
        name = f"group {self.identity.group_id}"
        code = getattr(error, "code", ErrorCode.NETWORK_EXCEPTION)
        unreachable = self._cluster.unreachable.get(self._coordinator)
        since = None if unreachable is None else unreachable.since
        cause = f"the group coordinator does not answer ({code.name})"
        outages.note(name, code, cause, str(error) or "no response in time", since=since)
        return {name}

    async def coordinator(self) -> int:
        """The coordinator's node id, looked up if it is not known. Raises KafkaError, OSError."""
        if self._coordinator not in self._cluster.cache.brokers:
            self._coordinator = await self._cluster.coordinator(self.identity.group_id)
        return self._coordinator

    def _lose_coordinator(self) -> None:
        self._coordinator = -1

    async def commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], timeout_ms: float
    ) -> None:
        """Commit offsets. Raises CommitFailedError after a rebalance, KafkaTimeoutError."""
        if offsets:
            await self._cluster.retrying(
                f"commit for group {self.identity.group_id}",
                lambda: self._commit_once(offsets),
                timeout_ms,
                fatal=frozenset({ErrorCode.REBALANCE_IN_PROGRESS}),
            )
            self.commits += 1

    async def _commit_once(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        member = self.identity
        is_joined = member.generation >= 0
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
            group_id=member.group_id,
            generation_id_or_member_epoch=member.generation,
            member_id=member.member_id if is_joined else "",
            group_instance_id=member.group_instance_id if is_joined else None,
            topics=tuple(
                OffsetCommitRequestTopic(name=name, partitions=tuple(rows))
                for name, rows in by_topic.items()
            ),
        )
        node = await self.coordinator()
        connection = await self._cluster.connection(node)
        version = connection.version_for(OffsetCommitRequest, NAMES_COMMIT_VERSION)
        response = await self._cluster.call_on(
            connection, request, OffsetCommitResponse, version=version
        )
        for topic in response.topics:
            for answer in topic.partitions:
                if answer.error_code:
                    self._commit_refused(answer.error_code, topic.name, answer.partition_index)

    def _commit_refused(self, code_value: int, topic: str, partition: int) -> None:
        code = error_code(code_value)
        where = f"commit of {topic}-{partition} for group {self.identity.group_id}"
        if code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
            self._lose_coordinator()
        if code in _LOST_MEMBERSHIP:
            self._request_rejoin()
            raise CommitFailedError(f"{where}: {code.name}, the group has rebalanced")
        raise kafka_error(code_value, where)

    def _asking_member(self) -> tuple[str, int] | None:
        """Id and epoch with which committed offsets are asked for; None in the classic protocol,
        in which the coordinator does not check who reads them."""
        return None

    async def committed(self, partitions: list[TopicPartition], timeout_ms: float) -> GroupOffsets:
        """The committed offsets of the partitions that have one. Raises KafkaTimeoutError."""

        async def attempt() -> GroupOffsets:
            node = await self.coordinator()
            try:
                return await fetch_group_offsets(
                    self._cluster, node, self.identity.group_id, partitions, self._asking_member()
                )
            except KafkaError as e:
                if e.code in (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                    self._lose_coordinator()
                raise
            except (OSError, KafkaTimeoutError):
                self._lose_coordinator()
                raise

        what = f"offsets of group {self.identity.group_id}"
        return await self._cluster.retrying(what, attempt, timeout_ms)
