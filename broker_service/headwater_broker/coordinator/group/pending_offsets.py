"""Offsets committed within open transactions (TxnOffsetCommit, KIP-98): pending until the marker.

A pending offset becomes the committed one when its transaction commits, unless a record of the same
partition with a higher log offset is committed by then: compaction keeps that one. Until the marker
the partition's offset is unstable either way (KIP-447). Pending offsets never expire. Pure.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from typing import NamedTuple

from headwater_broker.coordinator.common.shard import Producer
from headwater_broker.coordinator.group.records import OffsetCommitValue, TopicPartition

OffsetKey = tuple[str, TopicPartition]
"""Group id and partition."""


class PendingOffset(NamedTuple):
    """An offset within an open transaction."""

    log_offset: int
    value: OffsetCommitValue


@dataclass(slots=True)
class _OpenTransaction:
    """A producer's transaction that has records in this partition of the log, and no marker."""

    producer_epoch: int
    keys: set[OffsetKey] = field(default_factory=set)


@dataclass(slots=True)
class _PendingPartition:
    """The pending offsets of one partition of a group, by producer id."""

    by_producer: dict[int, PendingOffset] = field(default_factory=dict)
    committed_at: int = -1
    """Log offset of the last offset committed meanwhile, without a transaction or with another."""


class PendingOffsets:
    """The pending offsets of one shard."""

    def __init__(self) -> None:
        self._open: dict[int, _OpenTransaction] = {}
        self._groups: dict[str, dict[TopicPartition, _PendingPartition]] = {}

    def put(self, producer: Producer, key: OffsetKey, pending: PendingOffset) -> None:
        """A record of an open transaction."""
        transaction = self._open.get(producer.producer_id)
        if transaction is None:
            transaction = self._open[producer.producer_id] = _OpenTransaction(0)
        transaction.producer_epoch = producer.producer_epoch
        transaction.keys.add(key)
        group_id, partition = key
        partitions = self._groups.setdefault(group_id, {})
        row = partitions.get(partition)
        if row is None:
            row = partitions[partition] = _PendingPartition()
        row.by_producer[producer.producer_id] = pending

    def committed(self, key: OffsetKey, log_offset: int) -> None:
        """An offset at `log_offset` is committed: pending ones before it cannot replace it."""
        row = self._row(key)
        if row is not None and log_offset > row.committed_at:
            row.committed_at = log_offset

    def deleted(self, key: OffsetKey, log_offset: int) -> None:
        """A tombstone at `log_offset` is committed: it drops the pending offsets before it."""
        row = self._row(key)
        if row is None:
            return
        for producer_id, pending in list(row.by_producer.items()):
            if pending.log_offset < log_offset:
                self._remove(producer_id, key)
                self._open[producer_id].keys.discard(key)

    def end(
        self, producer_id: int, *, commit: bool
    ) -> list[tuple[OffsetKey, PendingOffset | None]]:
        """The transaction ended: each of its partitions with the offset that becomes the committed
        one, or None when the committed offset stays.
        """
        transaction = self._open.pop(producer_id, None)
        keys = () if transaction is None else sorted(transaction.keys)
        ended = [(key, *self._remove(producer_id, key)) for key in keys]
        return [(key, pending if commit and latest else None) for key, pending, latest in ended]

    def is_open(self, producer: Producer) -> bool:
        """True when the producer, in this epoch, has records without a marker here."""
        transaction = self._open.get(producer.producer_id)
        return transaction is not None and transaction.producer_epoch == producer.producer_epoch

    def of_group(self, group_id: str) -> Set[TopicPartition]:
        """The partitions of a group that have a pending offset (KIP-447)."""
        return self._groups.get(group_id, {}).keys()

    def _row(self, key: OffsetKey) -> _PendingPartition | None:
        partitions = self._groups.get(key[0])
        return None if partitions is None else partitions.get(key[1])

    def _remove(self, producer_id: int, key: OffsetKey) -> tuple[PendingOffset, bool]:
        """The pending offset, and whether no later one of its partition is committed."""
        group_id, partition = key
        partitions = self._groups[group_id]
        row = partitions[partition]
        pending = row.by_producer.pop(producer_id)
        if not row.by_producer:
            del partitions[partition]
            if not partitions:
                del self._groups[group_id]
        return pending, pending.log_offset > row.committed_at
