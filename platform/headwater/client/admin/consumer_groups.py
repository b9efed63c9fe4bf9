"""Describes groups of the consumer protocol (KIP-848): ConsumerGroupDescribe, on the loop."""

from __future__ import annotations

from headwater.client.cluster import Cluster
from headwater.client.errors import kafka_error
from headwater.client.values import GroupDescription, MemberDescription, TopicPartition
from headwater.errors import ErrorCode
from headwater.wire.apis.k69_consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

CONSUMER = "consumer"


async def describe_consumer_group(
    cluster: Cluster, node: int, group: str
) -> GroupDescription | None:
    """The group at its coordinator `node`; None where it is of another type, or does not exist.

    Also None from a broker that does not know the protocol. Raises KafkaError.
    """
    connection = await cluster.connection(node)
    if ConsumerGroupDescribeRequest.api_key not in connection.versions:
        return None
    reply = await cluster.call_on(
        connection,
        ConsumerGroupDescribeRequest(group_ids=(group,)),
        ConsumerGroupDescribeResponse,
        version=connection.version_for(ConsumerGroupDescribeRequest),
    )
    (row,) = reply.groups
    if row.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
        return None  # a broker may know the protocol and have switched it off
    if row.error_code:
        raise kafka_error(row.error_code, row.error_message or f"group {group}")
    return _described(row)


def _described(row: DescribedGroup) -> GroupDescription:
    members = tuple(
        MemberDescription(
            m.member_id,
            m.instance_id,
            m.client_id,
            m.client_host,
            _partitions(m.assignment),
            m.member_epoch,
            _partitions(m.target_assignment),
        )
        for m in row.members
    )
    return GroupDescription(
        row.group_id,
        row.group_state,
        CONSUMER,
        row.assignor_name,
        members,
        CONSUMER,
        row.group_epoch,
        row.assignment_epoch,
    )


def _partitions(assignment: Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, number)
        for topic in assignment.topic_partitions
        for number in topic.partitions
    )
