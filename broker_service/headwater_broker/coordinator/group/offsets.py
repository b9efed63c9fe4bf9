"""Committed offsets of a group: commit, fetch, delete. Pure.

Stored as `records`, loaded by `common.loader` through the shard, removed by `offset_expiration`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import NamedTuple

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.common.shard import Now, StoredRecord
from headwater_broker.coordinator.group.classic.group import CONSUMER
from headwater_broker.coordinator.group.config import GroupConfig
from headwater_broker.coordinator.group.decided_offsets import DecidedOffsets
from headwater_broker.coordinator.group.records import (
    OffsetCommitValue,
    TopicPartition,
    offset_record,
)
from headwater_broker.coordinator.group.table import AnyGroup

NO_OFFSET = -1


class Commit(NamedTuple):
    """One offset to commit."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str


class Committed(NamedTuple):
    """One committed offset, for OffsetFetch; -1: none, which is no error."""

    offset: int = NO_OFFSET
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


UNSTABLE = Committed(error=ErrorCode.UNSTABLE_OFFSET_COMMIT)
"""An open transaction may change the offset: a consumer that requires a stable one retries."""


def commit(
    group_id: str,
    rows: Iterable[Commit],
    retention_ms: int,
    now: Now,
    config: GroupConfig,
    decided: DecidedOffsets,
) -> tuple[list[StoredRecord], dict[TopicPartition, ErrorCode]]:
    """The records, and an error code per partition. `retention_ms` -1: the broker's setting.
    `decided` gets the offsets of the records."""
    records = []
    codes = {}
    expire = now.wall_ms + retention_ms if retention_ms >= 0 else -1
    limit = config.offset_metadata_max_bytes
    for row in rows:
        key = (row.topic, row.partition)
        # UTF-16 code units, as Java counts, in spite of the name of the setting.
        if len(row.metadata.encode("utf-16-le", "surrogatepass")) // 2 > limit:
            codes[key] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            continue
        codes[key] = ErrorCode.NONE
        value = OffsetCommitValue(
            offset=row.offset,
            leader_epoch=row.leader_epoch,
            metadata=row.metadata,
            commit_timestamp=now.wall_ms,
            expire_timestamp=expire,
        )
        record = offset_record(group_id, row.topic, row.partition, value)
        records.append(record)
        if expire < 0:  # the format of the others has no leader epoch
            decided.note(record, group_id, key, value)
    return records, codes


def fetch(
    group: AnyGroup | None,
    wanted: Iterable[TopicPartition] | None,
    unstable: Container[TopicPartition] = (),
) -> dict[TopicPartition, Committed]:
    """The offsets of the wanted partitions (None: all); `UNSTABLE` for those in `unstable`."""
    known = {} if group is None else group.offsets
    keys = sorted(known) if wanted is None else wanted
    return {key: UNSTABLE if key in unstable else _committed(known.get(key)) for key in keys}


def _committed(value: OffsetCommitValue | None) -> Committed:
    if value is None:
        return Committed()
    return Committed(value.offset, value.leader_epoch, value.metadata)


def delete(
    group: AnyGroup, wanted: Iterable[TopicPartition], pending: Container[TopicPartition]
) -> tuple[list[StoredRecord], dict[TopicPartition, ErrorCode]]:
    """Tombstones for offsets of topics without subscribers (KIP-496); `pending`: partitions with an
    offset in an open transaction, which a tombstone drops, too. Raises KafkaError."""
    in_use: set[str] | None = set()
    if not group.is_empty:
        if group.protocol_type != CONSUMER:
            raise KafkaError(
                ErrorCode.NON_EMPTY_GROUP,
                f"group {group.group_id!r} has members, and is no group of consumers",
            )
        in_use = group.subscribed_topics()  # None: not known, so it may be any topic
    records = []
    codes = {}
    for topic, partition in wanted:
        key = (topic, partition)
        codes[key] = ErrorCode.NONE
        if in_use is None or topic in in_use:
            codes[key] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        elif key in group.offsets or key in pending:
            records.append(offset_record(group.group_id, topic, partition, None))
    return records, codes


def tombstones(
    group: AnyGroup, topics: frozenset[str] | None, pending: Iterable[TopicPartition]
) -> Iterator[StoredRecord]:
    """For every offset of the group, or those of some topics; `pending`: partitions with an offset
    in an open transaction, which a tombstone drops, too."""
    for topic, partition in sorted({*group.offsets, *pending}):
        if topics is None or topic in topics:
            yield offset_record(group.group_id, topic, partition, None)
