"""Offsets committed within open transactions (TxnOffsetCommit, KIP-98): pending until the marker.

A pending offset becomes the committed one when its transaction commits, unless a record of the same
partition with a higher log offset is committed by then. Pending offsets never expire. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater_broker.coordinator.group.classic_group import TopicPartition
from headwater_broker.coordinator.group.records import OffsetCommitValue

OffsetKey = tuple[str, TopicPartition]
"""Group id and partition."""


class PendingOffset(NamedTuple):
    """An offset within an open transaction."""

    log_offset: int
    value: OffsetCommitValue


class PendingOffsets:
    """The pending offsets of one shard, by producer id.

    Every pending offset is newer than the committed one of its partition: a committed record drops
    the pending ones before it.
    """

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[OffsetKey, PendingOffset]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_producer.values()))

    def put(self, producer_id: int, key: OffsetKey, pending: PendingOffset) -> None:
        """A record of an open transaction."""
        self._by_producer.setdefault(producer_id, {})[key] = pending

    def committed(self, key: OffsetKey, log_offset: int) -> None:
        """An offset or a tombstone at `log_offset` is committed: older pending ones are void."""
        for producer_id, rows in list(self._by_producer.items()):
            pending = rows.get(key)
            if pending is not None and pending.log_offset < log_offset:
                del rows[key]
                if not rows:
                    del self._by_producer[producer_id]

    def end(self, producer_id: int, *, commit: bool) -> list[tuple[OffsetKey, PendingOffset]]:
        """The transaction ended; the offsets that are committed with it."""
        rows = self._by_producer.pop(producer_id, {})
        return list(rows.items()) if commit else []

    def of_group(self, group_id: str) -> set[TopicPartition]:
        """The partitions of a group that have a pending offset (KIP-447)."""
        return {
            partition
            for rows in self._by_producer.values()
            for group, partition in rows
            if group == group_id
        }
