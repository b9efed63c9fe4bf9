"""ConsumerGroupDescribe: a consumer group as tools see it (KIP-848). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from headwater.errors import ErrorCode
from headwater.wire.apis.k69_consumer_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.consumer.member import ConsumerMember
from headwater_broker.coordinator.group.consumer.states import ConsumerGroupState
from headwater_broker.coordinator.group.consumer.subscriptions import Topics
from headwater_broker.coordinator.group.consumer.target import assignor_of

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def describe(group: ConsumerGroup, topics: Topics) -> DescribedGroup:
    """The group; topics that are deleted meanwhile are left out of assignments."""
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=assignor_of(group.members.values())[0],
        members=tuple(_member(group, m, topics) for m in group.members.values()),
    )


def not_found(group_id: str) -> DescribedGroup:
    """A group that is not known, or of another kind."""
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} is not a consumer group.",
        group_id=group_id,
        group_state=ConsumerGroupState.DEAD.value,
        assignor_name="",
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        subscribed_topic_regex=member.regex,
        assignment=_assignment(member.assigned, topics),
        target_assignment=_assignment(group.target_of(member), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(partitions: Mapping[UUID, Iterable[int]], topics: Topics) -> Assignment:
    rows = []
    for topic_id in sorted(partitions):
        known = topics.by_id(topic_id)
        if known is not None:
            rows.append(
                TopicPartitions(
                    topic_id=topic_id,
                    topic_name=known.name,
                    partitions=tuple(sorted(partitions[topic_id])),
                )
            )
    return Assignment(topic_partitions=tuple(rows))
