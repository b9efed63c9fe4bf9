"""A group passes from the classic to the consumer protocol and back (KIP-848). Pure.

Each way is one decision, so that a reader of the log sees the group before or after it. Members of
the classic protocol stay, and keep what they hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k14_sync_group import SyncGroupResponse
from headwater.wire.schema import SchemaError
from headwater_broker.coordinator.common.shard import Decision, StoredRecord
from headwater_broker.coordinator.group import records as classic_records
from headwater_broker.coordinator.group.classic.group import (
    CONSUMER,
    Group,
    Member,
    reply_if_waiting,
)
from headwater_broker.coordinator.group.classic.rebalance import failed_join
from headwater_broker.coordinator.group.config import GroupConfig
from headwater_broker.coordinator.group.consumer.classic_protocol_data import (
    assignment_bytes,
    by_id,
    read_assignment,
    read_subscription,
)
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.consumer.member import (
    ClassicSide,
    ConsumerMember,
    in_epoch,
    named,
)
from headwater_broker.coordinator.group.consumer.records import (
    group_record,
    member_record,
    position_record,
    target_epoch_record,
    target_record,
)
from headwater_broker.coordinator.group.consumer.subscriptions import NO_HASH, Topics
from headwater_broker.coordinator.group.records import GroupMetadataValue, MemberMetadata

BUILT_IN = frozenset(("range", "roundrobin", "sticky", "cooperative-sticky"))
"""Assignors that every client has. librdkafka's sticky ones put what they remember of the last
assignment beside it, which nobody misses; the data of an assignor of one's own must not be lost."""
UPGRADE_GROWTH = 2
"""The decision that upgrades a group may put another target of each member behind its records."""
JOIN_BYTES = 64 * 1024
"""Room in that decision for the records of the member that joins."""
UP = frozenset(("upgrade", "bidirectional"))
DOWN = frozenset(("downgrade", "bidirectional"))


def upgraded(group: Group, topics: Topics, config: GroupConfig, out: Decision) -> ConsumerGroup:
    """The classic group as a consumer group, whose records `out` gets. Members that wait for a
    rebalance get REBALANCE_IN_PROGRESS. Raises GROUP_ID_NOT_FOUND for one that must stay."""
    _check_upgrade(group, config)
    try:
        members = _modern_members(group, topics)
    except SchemaError as error:
        raise _stays(group, f"the metadata of a member cannot be read: {error}") from error
    new = ConsumerGroup(group.group_id, epoch=group.generation)
    group_id, again = group.group_id, ErrorCode.REBALANCE_IN_PROGRESS
    if group.is_stored:
        out.records.append(classic_records.group_record(group_id, None))
    out.records.append(group_record(group_id, group.generation, NO_HASH))
    for member in members:
        new.put_member(member)
        new.set_target(member.member_id, named(member.assigned))
        out.records.append(member_record(group_id, member))
        out.records.append(target_record(group_id, member.member_id, named(member.assigned)))
    new.set_target_epoch(group.generation, 0)
    out.records.append(target_epoch_record(group_id, group.generation, 0))
    out.records += [position_record(group_id, member) for member in members]
    if UPGRADE_GROWTH * out.size_max_bytes + JOIN_BYTES > config.batch_max_bytes:
        raise _stays(
            group,
            f"records of {len(members)} members may not fit one batch of {config.batch_max_bytes} "
            "bytes (message.max.bytes)",
        )
    for waiting in group.members.values():
        reply_if_waiting(out, waiting.join, failed_join(again, waiting.member_id))
        reply_if_waiting(out, waiting.sync, SyncGroupResponse(error_code=again))
        waiting.join = waiting.sync = None
    return new


def _check_upgrade(group: Group, config: GroupConfig) -> None:
    if config.migration_policy not in UP:
        raise _stays(group, f"group.consumer.migration.policy is {config.migration_policy}")
    if group.protocol_type != CONSUMER:
        raise _stays(group, f"its protocol type is {group.protocol_type!r}")
    if len(group.members) > config.consumer_max_size:
        raise _stays(group, f"it has {len(group.members)} members")


def _modern_members(group: Group, topics: Topics) -> list[ConsumerMember]:
    """Raises SchemaError, GROUP_ID_NOT_FOUND."""
    taken: dict[UUID, set[int]] = {}
    members = []
    for member in group.members.values():
        subscription = read_subscription(_metadata(group, member))
        assignment = read_assignment(member.assignment)
        if assignment.user_data and group.protocol not in BUILT_IN:
            raise _stays(group, "an assignor of its own put data into the assignment")
        held: dict[UUID, frozenset[int]] = {}
        for topic_id, partitions in by_id(assignment.assigned_partitions, topics).items():
            others = taken.setdefault(topic_id, set())
            held[topic_id] = partitions - others
            others |= partitions
        members.append(
            ConsumerMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=subscription.rack_id or None,
                client_id=member.client_id,
                client_host=member.client_host,
                topics=frozenset(subscription.topics),
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                classic=ClassicSide(member.session_timeout_ms, member.protocols),
                epoch=group.generation,
                previous_epoch=group.generation,
                assigned=in_epoch(held, group.generation),
            )
        )
    return members


def _metadata(group: Group, member: Member) -> bytes:
    return member.metadata(group.protocol) or next((data for _, data in member.protocols), b"")


def _stays(group: Group, why: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Group {group.group_id} is not a consumer group, and stays a classic one: {why}.",
    )


def may_downgrade(members: Mapping[str, ConsumerMember], config: GroupConfig) -> bool:
    """True when only members of the classic protocol are left, and the group may follow them."""
    return (
        config.migration_policy in DOWN
        and 0 < len(members) <= config.max_size
        and all(member.classic is not None for member in members.values())
        and bool(_common_protocols(members))
    )


def _common_protocols(members: Mapping[str, ConsumerMember]) -> list[str]:
    """In the first member's order."""
    rows = [m.classic.protocols for m in members.values() if m.classic is not None]
    return [name for name, _ in rows[0] if all(name in {other for other, _ in row} for row in rows)]


def classic_group_record(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerMember],
    topics: Topics,
    now_ms: int,
) -> StoredRecord:
    """The classic group of these members, in the generation that is the group's epoch."""
    protocol = _common_protocols(members)[0]
    rows = []
    for member in members.values():
        side = member.classic or ClassicSide(0, ())
        metadata = dict(side.protocols)[protocol]
        rows.append(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=side.session_timeout_ms,
                subscription=metadata,
                assignment=assignment_bytes(member.assigned, topics, metadata),
            )
        )
    value = GroupMetadataValue(
        protocol_type=CONSUMER,
        generation=group.epoch,
        protocol=protocol,
        leader=rows[0].member_id,
        current_state_timestamp=now_ms,
        members=tuple(rows),
    )
    return classic_records.group_record(group.group_id, value)
