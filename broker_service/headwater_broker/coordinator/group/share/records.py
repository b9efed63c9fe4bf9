"""The records of share groups (KIP-932) in `__consumer_offsets`, built and read.

Kinds (versions of the key): 10 a member, 11 the group, 12 and 13 the target assignment, 14 what a
member has, 15 the share partitions with a state.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import UUID

from headwater.wire.schema import Message, SchemaError, decoder, encoder
from headwater_broker.coordinator.common.shard import StoredRecord
from headwater_broker.coordinator.group.records import read_value, versioned
from headwater_broker.coordinator.group.share import record_schemas as schemas
from headwater_broker.coordinator.group.share.assignor import Target
from headwater_broker.coordinator.group.share.group import (
    ShareMember,
    SharePartitions,
    TopicShare,
)

_VERSION = struct.Struct(">h")
MEMBER, GROUP, TARGET_EPOCH, TARGET, POSITION, SHARES = 10, 11, 12, 13, 14, 15
STABLE = 0
"""The only state of a member of a share group."""

KEYS: Mapping[int, type[Message]] = {
    MEMBER: schemas.ShareGroupMemberMetadataKey,
    GROUP: schemas.ShareGroupMetadataKey,
    TARGET_EPOCH: schemas.ShareGroupTargetAssignmentMetadataKey,
    TARGET: schemas.ShareGroupTargetAssignmentMemberKey,
    POSITION: schemas.ShareGroupCurrentMemberAssignmentKey,
    SHARES: schemas.ShareGroupStatePartitionMetadataKey,
}


def read_key(kind: int, key: bytes) -> Any:
    """The names in a key of one of these kinds. Raises SchemaError."""
    schema = KEYS.get(kind)
    if schema is None:
        raise SchemaError(f"a record of kind {kind}")
    return decoder(schema, 0)(key, _VERSION.size)[0]


def tombstone(kind: int, group_id: str, member_id: str | None = None) -> StoredRecord:
    """The record that deletes one."""
    return _record(kind, group_id, member_id, None)


def _record(kind: int, group_id: str, member_id: str | None, value: Message | None) -> StoredRecord:
    names: dict[str, Any] = {"group_id": group_id}
    if member_id is not None:
        names["member_id"] = member_id
    schema = KEYS[kind]
    key = _VERSION.pack(kind) + encoder(schema, 0)(schema(**names))
    return StoredRecord(key, None if value is None else versioned(value, 0))


def group_record(group_id: str, epoch: int, metadata_hash: int) -> StoredRecord:
    """The group's epoch and the hash of its topics."""
    value = schemas.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return _record(GROUP, group_id, None, value)


def read_group(value: bytes) -> tuple[int, int]:
    """(epoch, hash). Raises SchemaError, NewerRecordError."""
    found = read_value(schemas.ShareGroupMetadataValue, value)
    return found.epoch, found.metadata_hash


def member_record(group_id: str, member: ShareMember) -> StoredRecord:
    """The member's subscription."""
    value = schemas.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
    )
    return _record(MEMBER, group_id, member.member_id, value)


def with_metadata(member: ShareMember, value: bytes) -> ShareMember:
    """The member with what its record says. Raises SchemaError, NewerRecordError."""
    found = read_value(schemas.ShareGroupMemberMetadataValue, value)
    return replace(
        member,
        rack_id=found.rack_id,
        client_id=found.client_id,
        client_host=found.client_host,
        topics=frozenset(found.subscribed_topic_names),
    )


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> StoredRecord:
    """The epoch of the target; the last record of a new target."""
    value = schemas.ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    return _record(TARGET_EPOCH, group_id, None, value)


def read_target_epoch(value: bytes) -> tuple[int, int]:
    """(epoch, timestamp). Raises SchemaError, NewerRecordError."""
    found = read_value(schemas.ShareGroupTargetAssignmentMetadataValue, value)
    return found.assignment_epoch, found.assignment_timestamp


def target_record(group_id: str, member_id: str, target: Target) -> StoredRecord:
    """The partitions that a member is to have."""
    rows = tuple(
        schemas.TopicPartition(topic_id=topic, partitions=tuple(sorted(indexes)))
        for topic, indexes in sorted(target.items())
    )
    value = schemas.ShareGroupTargetAssignmentMemberValue(topic_partitions=rows)
    return _record(TARGET, group_id, member_id, value)


def read_target(value: bytes) -> Target:
    """Raises SchemaError, NewerRecordError."""
    found = read_value(schemas.ShareGroupTargetAssignmentMemberValue, value)
    return {row.topic_id: frozenset(row.partitions) for row in found.topic_partitions}


def position_record(group_id: str, member: ShareMember) -> StoredRecord:
    """The member's assignment."""
    value = schemas.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=STABLE,
        assigned_partitions=tuple(
            schemas.TopicPartitions(topic_id=topic, partitions=tuple(sorted(indexes)))
            for topic, indexes in sorted(member.assigned.items())
        ),
    )
    return _record(POSITION, group_id, member.member_id, value)


def with_position(member: ShareMember, value: bytes) -> ShareMember:
    """The member with its assignment. Raises SchemaError, NewerRecordError."""
    found = read_value(schemas.ShareGroupCurrentMemberAssignmentValue, value)
    return replace(
        member,
        epoch=found.member_epoch,
        previous_epoch=found.previous_member_epoch,
        assigned={row.topic_id: frozenset(row.partitions) for row in found.assigned_partitions},
    )


def shares_record(group_id: str, shares: SharePartitions) -> StoredRecord:
    """The share partitions of the group."""
    value = schemas.ShareGroupStatePartitionMetadataValue(
        initializing_topics=_rows(shares.initializing),
        initialized_topics=_rows(shares.initialized),
        deleting_topics=tuple(
            schemas.TopicInfo(topic_id=topic, topic_name=name)
            for topic, name in sorted(shares.deleting.items())
        ),
    )
    return _record(SHARES, group_id, None, value)


def read_shares(value: bytes) -> SharePartitions:
    """Raises SchemaError, NewerRecordError."""
    found = read_value(schemas.ShareGroupStatePartitionMetadataValue, value)
    return SharePartitions(
        _shares(found.initializing_topics),
        _shares(found.initialized_topics),
        {row.topic_id: row.topic_name for row in found.deleting_topics},
    )


def group_tombstones(group_id: str) -> list[StoredRecord]:
    """Of a group without members."""
    return [tombstone(kind, group_id) for kind in (SHARES, TARGET_EPOCH, GROUP)]


def member_tombstones(group_id: str, member_id: str) -> list[StoredRecord]:
    """Of a member that leaves."""
    return [tombstone(kind, group_id, member_id) for kind in (POSITION, TARGET, MEMBER)]


def _rows(topics: Mapping[UUID, TopicShare]) -> tuple[schemas.TopicPartitionsInfo, ...]:
    return tuple(
        schemas.TopicPartitionsInfo(
            topic_id=topic, topic_name=share.name, partitions=tuple(sorted(share.partitions))
        )
        for topic, share in sorted(topics.items())
    )


def _shares(rows: Iterable[schemas.TopicPartitionsInfo]) -> dict[UUID, TopicShare]:
    return {row.topic_id: TopicShare(row.topic_name, frozenset(row.partitions)) for row in rows}
