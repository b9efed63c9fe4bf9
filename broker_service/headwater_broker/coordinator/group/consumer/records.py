"""The records of consumer groups (KIP-848) in `__consumer_offsets`, built and read.

Kinds (versions of the key): 3 the group, 4 an obsolete one of topics, 5 a member, 6 and 7 the
target assignment, 8 where a member is on its way to it, 16 a resolved regular expression.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from uuid import UUID

from headwater.wire.schema import Message, SchemaError, decoder, encoder
from headwater_broker.coordinator.common.shard import StoredRecord
from headwater_broker.coordinator.group.consumer import record_schemas as schemas
from headwater_broker.coordinator.group.consumer.member import (
    ClassicSide,
    ConsumerMember,
    Named,
    Owned,
)
from headwater_broker.coordinator.group.consumer.states import MemberState
from headwater_broker.coordinator.group.consumer.subscriptions import ResolvedRegex
from headwater_broker.coordinator.group.records import read_value, versioned

_VERSION = struct.Struct(">h")
GROUP, TOPICS, MEMBER, TARGET_EPOCH, TARGET, POSITION, REGEX = 3, 4, 5, 6, 7, 8, 16

KEYS: Mapping[int, type[Message]] = {
    GROUP: schemas.ConsumerGroupMetadataKey,
    TOPICS: schemas.ConsumerGroupPartitionMetadataKey,
    MEMBER: schemas.ConsumerGroupMemberMetadataKey,
    TARGET_EPOCH: schemas.ConsumerGroupTargetAssignmentMetadataKey,
    TARGET: schemas.ConsumerGroupTargetAssignmentMemberKey,
    POSITION: schemas.ConsumerGroupCurrentMemberAssignmentKey,
    REGEX: schemas.ConsumerGroupRegularExpressionKey,
}


def _record(kind: int, key: Message, value: Message | None) -> StoredRecord:
    name = _VERSION.pack(kind) + encoder(type(key), 0)(key)
    return StoredRecord(name, None if value is None else versioned(value, 0))


def group_record(group_id: str, epoch: int, metadata_hash: int) -> StoredRecord:
    """The group's epoch, and the hash of its topics (`subscriptions.metadata_hash`)."""
    return _record(
        GROUP,
        schemas.ConsumerGroupMetadataKey(group_id=group_id),
        schemas.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash),
    )


def group_tombstone(group_id: str) -> StoredRecord:
    """The group is gone."""
    return _record(GROUP, schemas.ConsumerGroupMetadataKey(group_id=group_id), None)


def topics_tombstone(group_id: str) -> StoredRecord:
    """Kafka before 4.1 stored a group's topics."""
    return _record(TOPICS, schemas.ConsumerGroupPartitionMetadataKey(group_id=group_id), None)


def _member_key(group_id: str, member_id: str) -> schemas.ConsumerGroupMemberMetadataKey:
    return schemas.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)


def member_record(group_id: str, member: ConsumerMember) -> StoredRecord:
    """The member's subscription and timeouts."""
    classic = None
    if member.classic is not None:
        classic = schemas.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=tuple(
                schemas.ClassicProtocol(name=name, metadata=data)
                for name, data in member.classic.protocols
            ),
        )
    value = schemas.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.assignor,
        classic_member_metadata=classic,
    )
    return _record(MEMBER, _member_key(group_id, member.member_id), value)


def member_tombstone(group_id: str, member_id: str) -> StoredRecord:
    """The member is gone."""
    return _record(MEMBER, _member_key(group_id, member_id), None)


def target_epoch_record(group_id: str, epoch: int, timestamp_ms: int) -> StoredRecord:
    """The epoch of the target assignment, and when it was computed."""
    value = schemas.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=timestamp_ms
    )
    key = schemas.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    return _record(TARGET_EPOCH, key, value)


def target_epoch_tombstone(group_id: str) -> StoredRecord:
    """There is no target assignment."""
    key = schemas.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    return _record(TARGET_EPOCH, key, None)


def target_record(group_id: str, member_id: str, target: Named | None) -> StoredRecord:
    """A member's part of the target assignment; None: its tombstone."""
    key = schemas.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    if target is None:
        return _record(TARGET, key, None)
    value = schemas.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=tuple(
            schemas.TopicPartition(topic_id=topic_id, partitions=tuple(sorted(target[topic_id])))
            for topic_id in sorted(target)
        )
    )
    return _record(TARGET, key, value)


def _position_key(group_id: str, member_id: str) -> schemas.ConsumerGroupCurrentMemberAssignmentKey:
    return schemas.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)


def position_record(group_id: str, member: ConsumerMember) -> StoredRecord:
    """Where the member is on its way to the target assignment."""
    value = schemas.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=int(member.state),
        assigned_partitions=_rows(member.assigned),
        partitions_pending_revocation=_rows(member.revoking),
    )
    return _record(POSITION, _position_key(group_id, member.member_id), value)


def position_tombstone(group_id: str, member_id: str) -> StoredRecord:
    """The member holds nothing."""
    return _record(POSITION, _position_key(group_id, member_id), None)


def regex_record(group_id: str, regex: str, resolved: ResolvedRegex | None) -> StoredRecord:
    """The topics that a regular expression stands for; None: its tombstone."""
    key = schemas.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    if resolved is None:
        return _record(REGEX, key, None)
    value = schemas.ConsumerGroupRegularExpressionValue(
        topics=tuple(sorted(resolved.topics)),
        version=resolved.version,
        timestamp=resolved.timestamp_ms,
    )
    return _record(REGEX, key, value)


def member_tombstones(group_id: str, member_id: str) -> list[StoredRecord]:
    """All of a member's, in the order in which a reader must see them."""
    return [
        position_tombstone(group_id, member_id),
        target_record(group_id, member_id, None),
        member_tombstone(group_id, member_id),
    ]


def group_tombstones(
    group_id: str, member_ids: Iterable[str], regexes: Iterable[str]
) -> list[StoredRecord]:
    """All of a group's."""
    out = [record for name in member_ids for record in member_tombstones(group_id, name)]
    out += [regex_record(group_id, regex, None) for regex in regexes]
    out += [target_epoch_tombstone(group_id), topics_tombstone(group_id), group_tombstone(group_id)]
    return out


def _rows(owned: Owned) -> tuple[schemas.TopicPartitions, ...]:
    rows = []
    for topic_id in sorted(owned):
        epochs = owned[topic_id]
        partitions = tuple(sorted(epochs))
        rows.append(
            schemas.TopicPartitions(
                topic_id=topic_id,
                partitions=partitions,
                assignment_epochs=tuple(epochs[p] for p in partitions),
            )
        )
    return tuple(rows)


# -- reading


def read_key(kind: int, key: bytes) -> Message:
    """The key behind its kind, one of `KEYS`. Raises SchemaError."""
    return decoder(KEYS[kind], 0)(key, _VERSION.size)[0]


def read_group(value: bytes) -> tuple[int, int]:
    """(epoch, metadata hash)."""
    read = read_value(schemas.ConsumerGroupMetadataValue, value)
    return read.epoch, read.metadata_hash


def read_target_epoch(value: bytes) -> tuple[int, int]:
    """(epoch, timestamp in ms)."""
    read = read_value(schemas.ConsumerGroupTargetAssignmentMetadataValue, value)
    return read.assignment_epoch, read.assignment_timestamp


def read_target(value: bytes) -> dict[UUID, frozenset[int]]:
    """A member's part of the target."""
    read = read_value(schemas.ConsumerGroupTargetAssignmentMemberValue, value)
    return {row.topic_id: frozenset(row.partitions) for row in read.topic_partitions}


def read_regex(value: bytes) -> ResolvedRegex:
    """The topics that a regular expression stands for."""
    read = read_value(schemas.ConsumerGroupRegularExpressionValue, value)
    return ResolvedRegex(frozenset(read.topics), read.version, read.timestamp)


def with_metadata(member: ConsumerMember, value: bytes) -> ConsumerMember:
    """The member with what its record of type 5 says."""
    read = read_value(schemas.ConsumerGroupMemberMetadataValue, value)
    classic = None
    if read.classic_member_metadata is not None:
        side = read.classic_member_metadata
        classic = ClassicSide(
            side.session_timeout_ms,
            tuple((p.name, bytes(p.metadata)) for p in side.supported_protocols),
        )
    return member.asking(
        instance_id=read.instance_id,
        rack_id=read.rack_id,
        client_id=read.client_id,
        client_host=read.client_host,
        topics=frozenset(read.subscribed_topic_names),
        regex=read.subscribed_topic_regex or None,
        rebalance_timeout_ms=read.rebalance_timeout_ms,
        assignor=read.server_assignor,
        classic=classic,
    )


def with_position(member: ConsumerMember, value: bytes) -> ConsumerMember:
    """The member with what its record of type 8 says. Raises SchemaError."""
    read = read_value(schemas.ConsumerGroupCurrentMemberAssignmentValue, value)
    try:
        state = MemberState(read.state)
    except ValueError as error:
        raise SchemaError(f"member {member.member_id!r} has the state {read.state}") from error
    return member.at(
        epoch=read.member_epoch,
        previous_epoch=read.previous_member_epoch,
        state=state,
        assigned=_owned(read.assigned_partitions, read.member_epoch),
        revoking=_owned(read.partitions_pending_revocation, read.member_epoch),
    )


def _owned(
    rows: Iterable[schemas.TopicPartitions], member_epoch: int
) -> dict[UUID, dict[int, int]]:
    """Kafka before 4.3 stored no assignment epochs: the member's epoch is the strict one."""
    found: dict[UUID, dict[int, int]] = {}
    for row in rows:
        epochs = row.assignment_epochs
        if epochs is None or len(epochs) != len(row.partitions):
            epochs = (member_epoch,) * len(row.partitions)
        found[row.topic_id] = dict(zip(row.partitions, epochs, strict=True))
    return found
