"""OffsetFetch: the committed offsets of groups, several of them by one request (KIP-709)."""

from __future__ import annotations

from collections.abc import Sequence

from headwater.client.cluster import Cluster
from headwater.client.errors import kafka_error
from headwater.client.values import OffsetAndMetadata, TopicPartition
from headwater.errors import KafkaError
from headwater.wire.apis.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
)

GROUPS_VERSION = 8
"""The first version with several groups."""
NAMES_VERSION = 9
"""The last version with topic names; later ones have topic ids."""
GroupOffsets = dict[TopicPartition, OffsetAndMetadata]
"""The committed offsets of one group, without the partitions that have none."""


async def fetch_offsets(
    cluster: Cluster, node: int, groups: Sequence[str]
) -> dict[str, GroupOffsets | KafkaError]:
    """All committed offsets of groups that `node` coordinates, or why a group's are refused."""
    connection = await cluster.connection(node)
    version = connection.version_for(OffsetFetchRequest, NAMES_VERSION)
    found: dict[str, GroupOffsets | KafkaError] = {}
    if version < GROUPS_VERSION:
        for group in groups:
            try:
                found[group] = await fetch_group_offsets(cluster, node, group, None)
            except KafkaError as error:
                found[group] = error
        return found
    rows = tuple(OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups)
    request = OffsetFetchRequest(groups=rows, require_stable=True)
    reply = await cluster.call_on(connection, request, OffsetFetchResponse, version=version)
    for answer in reply.groups:
        try:
            found[answer.group_id] = _offsets(answer, answer.group_id)
        except KafkaError as error:
            found[answer.group_id] = error
    return found


async def fetch_group_offsets(
    cluster: Cluster,
    node: int,
    group: str,
    partitions: list[TopicPartition] | None,
    member: tuple[str, int] | None = None,
) -> GroupOffsets:
    """The committed offsets of a group that `node` coordinates, of these partitions or of all.

    `member`: id and epoch of the member that asks (KIP-848); the coordinator refuses one that it
    has fenced. Raises KafkaError, OSError.
    """
    connection = await cluster.connection(node)
    version = connection.version_for(OffsetFetchRequest, NAMES_VERSION)
    by_topic: dict[str, list[int]] | None = None
    if partitions is not None:
        by_topic = {}
        for tp in partitions:
            by_topic.setdefault(tp.topic, []).append(tp.partition)
    by_group = version >= GROUPS_VERSION
    make = _group_request if by_group else _old_request
    request = make(group, by_topic, member)
    reply = await cluster.call_on(connection, request, OffsetFetchResponse, version=version)
    return _offsets(reply.groups[0] if by_group else reply, group)


def _offsets(answer: OffsetFetchResponseGroup | OffsetFetchResponse, group: str) -> GroupOffsets:
    """One group's offsets in a response. Raises KafkaError."""
    if answer.error_code:
        raise kafka_error(answer.error_code, f"offsets of group {group}")
    out: GroupOffsets = {}
    for topic in answer.topics:
        for row in topic.partitions:
            if row.error_code:
                raise kafka_error(row.error_code, f"{topic.name}-{row.partition_index} of {group}")
            if row.committed_offset >= 0:
                out[TopicPartition(topic.name, row.partition_index)] = OffsetAndMetadata(
                    row.committed_offset, row.metadata or "", row.committed_leader_epoch
                )
    return out


def _group_request(
    group: str, by_topic: dict[str, list[int]] | None, member: tuple[str, int] | None
) -> OffsetFetchRequest:
    topics = None
    if by_topic is not None:
        topics = tuple(
            OffsetFetchRequestTopics(name=t, partition_indexes=tuple(p))
            for t, p in by_topic.items()
        )
    member_id, epoch = (None, -1) if member is None else member
    row = OffsetFetchRequestGroup(
        group_id=group, member_id=member_id, member_epoch=epoch, topics=topics
    )
    return OffsetFetchRequest(groups=(row,), require_stable=True)


def _old_request(
    group: str, by_topic: dict[str, list[int]] | None, _member: tuple[str, int] | None
) -> OffsetFetchRequest:
    """For brokers that know one group a request. Those before version 7 have no stable offsets."""
    old = None
    if by_topic is not None:
        old = tuple(
            OffsetFetchRequestTopic(name=t, partition_indexes=tuple(p)) for t, p in by_topic.items()
        )
    return OffsetFetchRequest(group_id=group, topics=old)
