"""The share partitions that this broker leads, and the share sessions (Kafka's
SharePartitionManager).

A share partition is loaded when a member first fetches from it. It is dropped when the leadership
changes, when the persister says that it is outdated, and when no member of its group fetches here
any more: the group's offsets may be set anew then.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.metadata.group_settings import GroupSettings
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.read_service import OffsetQuery, ReadService
from headwater_broker.replica.share.led_partition import (
    LedSharePartition,
    ShareCounts,
    ShareParts,
    answer_of,
)
from headwater_broker.replica.share.offset_reset import reset_query
from headwater_broker.replica.share.ports import SharePartitionKey
from headwater_broker.replica.share.sessions import PartitionId, ShareSession, ShareSessionCache
from headwater_broker.replica.share.share_partition import Acknowledgement

_SILENT = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.INVALID_REQUEST,
    }
)
"""Errors of loading that pass: a fetch gets no records. Java's share consumer knows none of them
and would end with an IllegalStateException. INVALID_REQUEST: the group coordinator has not
initialized the state yet."""


class ShareManager:
    """All share partitions and share sessions of this broker. Belongs to its loop."""

    def __init__(self, parts: ShareParts, session_slots: Callable[[], int]) -> None:
        """`session_slots`: group.share.max.share.sessions as it is now."""
        self.sessions = ShareSessionCache(session_slots, self._session_closed)
        self.counts = ShareCounts()
        self.acknowledged: Counter[int] = Counter()
        """Acknowledged offsets by type."""
        self.settings_of = parts.settings_of
        self._parts = parts
        self._led: dict[PartitionId, dict[str, LedSharePartition]] = {}

    def __len__(self) -> int:
        return sum(len(groups) for groups in self._led.values())

    def __iter__(self) -> Iterator[LedSharePartition]:
        for groups in self._led.values():
            yield from groups.values()

    def find(self, group_id: str, partition: Partition) -> LedSharePartition:
        """The share partition, which may still be loading, or could not be loaded."""
        groups = self._led.setdefault((partition.topic_id, partition.partition), {})
        led = groups.get(group_id)
        if led is not None and not led.is_stale and led.leader_epoch == partition.leader_epoch:
            return led
        if led is not None:
            led.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{led} is loaded again"))
        key = SharePartitionKey(group_id, partition.topic_id, partition.partition)
        led = LedSharePartition(key, partition, self._parts, self.counts, self._idle)
        self._led.setdefault((partition.topic_id, partition.partition), {})[group_id] = led
        return led

    def ready(self, group_id: str, partition: Partition) -> LedSharePartition | None:
        """The share partition if it is loaded; None: a fetch waits for its gauge. Raises the
        KafkaError that a fetch is answered with."""
        led = self.find(group_id, partition)
        if led.failure is not None:
            if led.failure.code in _SILENT:
                return None
            raise answer_of(led.failure)
        return None if led.machine is None else led

    def acknowledge(
        self,
        group_id: str,
        member_id: str,
        partition: Partition,
        acknowledgements: list[Acknowledgement],
    ) -> asyncio.Future[None] | None:
        """See `LedSharePartition.acknowledge`. Of what is not loaded nobody holds records:
        INVALID_RECORD_STATE."""
        led = self._led.get((partition.topic_id, partition.partition), {}).get(group_id)
        if led is None or led.is_stale or led.machine is None:
            raise KafkaError(
                ErrorCode.INVALID_RECORD_STATE,
                f"member {member_id} of group {group_id} holds no records of "
                f"{partition.topic}-{partition.partition}",
            )
        done = led.acknowledge(member_id, acknowledgements)
        for row in acknowledgements:
            if len(row.types) == 1:
                self.acknowledged[row.types[0]] += row.last - row.first + 1
            else:
                self.acknowledged.update(row.types)
        return done

    # -- what ends a share partition

    def leadership_changed(self, partition: Partition) -> None:
        """LeaderAndIsr or StopReplica was applied to this partition."""
        groups = self._led.get((partition.topic_id, partition.partition), {})
        for led in list(groups.values()):
            if not partition.is_leader or partition.leader_epoch != led.leader_epoch:
                where = f"{partition.topic}-{partition.partition}"
                led.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{where} has a new leader"))

    def _session_closed(self, session: ShareSession, is_last: bool) -> None:
        for groups in list(self._led.values()):
            led = groups.get(session.group_id)
            if led is not None:
                led.release(session.member_id)
                if is_last:
                    self._idle(led)

    def _idle(self, led: LedSharePartition) -> None:
        """Drop it when it is over, or nobody of its group is here and nothing is under way."""
        key = led.key
        if not led.is_over:
            if led.is_busy or self.sessions.has_members(key.group_id):
                return
            led.end(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{led}: no member is here"))
            return
        groups = self._led.get((key.topic_id, key.partition), {})
        if groups.get(key.group_id) is led:
            del groups[key.group_id]
            if not groups:
                del self._led[key.topic_id, key.partition]

    async def close(self) -> None:
        """The broker stops."""
        for led in list(self):
            await led.close()


def describe_share_partition(led: LedSharePartition) -> dict[str, Any]:
    """The row of one share partition in the status document."""
    machine = led.machine
    row: dict[str, Any] = {
        "group": led.key.group_id,
        "topic": led.partition.topic,
        "partition": led.key.partition,
        "leader_epoch": led.leader_epoch,
        "failure": "" if led.failure is None else str(led.failure),
    }
    if machine is not None:
        row |= {
            "start_offset": machine.start_offset,
            "end_offset": machine.end_offset,
            "locked": machine.locks,
            "complete": machine.complete,
        }
    return row


def first_offset(
    reads: ReadService, now_ms: Callable[[], int]
) -> Callable[[Partition, GroupSettings], Any]:
    """`ShareParts.first_offset`: share.auto.offset.reset, looked up as ListOffsets does."""

    async def find(partition: Partition, settings: GroupSettings) -> int:
        timestamp = reset_query(settings.share_auto_offset_reset, now_ms())
        query = OffsetQuery(timestamp, partition.leader_epoch, -1, read_committed=False)
        found = await reads.offset_of(partition, query)
        return found.offset if found.offset >= 0 else partition.high_watermark

    return find
