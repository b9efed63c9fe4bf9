"""Offsets whose records were just decided: their replay need not decode them again. Pure.

A record is replayed right after its decision, unless its append is refused: then it is decided
again, or forgotten here with others.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater_broker.coordinator.common.shard import StoredRecord
from headwater_broker.coordinator.group.records import OffsetCommitValue, TopicPartition

DECIDED_MAX = 1_000
"""Offsets that are remembered; one more forgets them all."""


class DecidedOffset(NamedTuple):
    """What a record says."""

    record_value: bytes | None
    """Of the very record that was decided."""
    group_id: str
    partition: TopicPartition
    value: OffsetCommitValue


class DecidedOffsets:
    """Those of one shard, by their record's key."""

    def __init__(self) -> None:
        self._by_key: dict[bytes, DecidedOffset] = {}

    def note(
        self,
        record: StoredRecord,
        group_id: str,
        partition: TopicPartition,
        value: OffsetCommitValue,
    ) -> None:
        """`record` is decided, and says this."""
        if len(self._by_key) >= DECIDED_MAX:
            self._by_key.clear()
        self._by_key[record.key] = DecidedOffset(record.value, group_id, partition, value)

    def pop(self, key: bytes, record_value: bytes | None) -> DecidedOffset | None:
        """What this record says; None: it has to be decoded."""
        decided = self._by_key.pop(key, None)
        return decided if decided is not None and decided.record_value is record_value else None
