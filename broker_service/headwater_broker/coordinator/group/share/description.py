"""ShareGroupDescribe: a share group as tools see it (KIP-932). Pure."""

from __future__ import annotations

from headwater.errors import ErrorCode
from headwater.wire.apis.k77_share_group_describe import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from headwater_broker.coordinator.group.consumer.subscriptions import Topics
from headwater_broker.coordinator.group.share.assignor import Target
from headwater_broker.coordinator.group.share.group import (
    ShareGroup,
    ShareGroupState,
    ShareMember,
)

ASSIGNOR = "simple"


def describe(group: ShareGroup, topics: Topics) -> DescribedGroup:
    """The group; topics that are deleted meanwhile are left out of assignments."""
    return DescribedGroup(
        error_code=ErrorCode.NONE,
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=ASSIGNOR,
        members=tuple(_member(m, topics) for m in group.members.values()),
    )


def not_found(group_id: str) -> DescribedGroup:
    """A group that is not known, or of another kind."""
    return DescribedGroup(
        error_code=ErrorCode.GROUP_ID_NOT_FOUND,
        error_message=f"Group {group_id} is not a share group.",
        group_id=group_id,
        group_state=ShareGroupState.DEAD.value,
        assignor_name="",
    )


def _member(member: ShareMember, topics: Topics) -> Member:
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(sorted(member.topics)),
        assignment=_assignment(member.assigned, topics),
    )


def _assignment(assigned: Target, topics: Topics) -> Assignment:
    rows = []
    for topic_id, indexes in assigned.items():
        known = topics.by_id(topic_id)
        if known is not None:
            rows.append(
                TopicPartitions(
                    topic_id=topic_id, topic_name=known.name, partitions=tuple(sorted(indexes))
                )
            )
    return Assignment(topic_partitions=tuple(rows))
