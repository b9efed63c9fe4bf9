"""Admin calls about share groups (KIP-932): their members, and their start offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from headwater.client.admin import arguments
from headwater.client.admin.replicas import Outcomes
from headwater.client.cluster import Cluster
from headwater.client.errors import error_code, kafka_error
from headwater.client.partition_names import ByPartition
from headwater.client.share_group_values import (
    ShareGroupDescription,
    ShareMemberDescription,
    SharePartitionOffset,
)
from headwater.client.values import GroupListing, OffsetAndMetadata, TopicPartition
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis import k90_describe_share_group_offsets as k90
from headwater.wire.apis import k91_alter_share_group_offsets as k91
from headwater.wire.apis import k92_delete_share_group_offsets as k92
from headwater.wire.apis.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from headwater.wire.apis.k77_share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)

SHARE_TYPE = "share"
TYPES_VERSION = 5
"""The first ListGroups version with types."""


class ShareGroupCalls:
    """Each method is one admin call, with retries, to the groups' coordinators."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list_groups(self) -> list[GroupListing]:
        """ListGroups of this type at every broker."""

        async def ask(node: int) -> list[GroupListing]:
            async def attempt() -> list[GroupListing]:
                connection = await self._cluster.connection(node)
                if connection.version_for(ListGroupsRequest) < TYPES_VERSION:
                    text = f"broker {node} has no share groups"
                    raise kafka_error(ErrorCode.UNSUPPORTED_VERSION, text)
                request = ListGroupsRequest(types_filter=(SHARE_TYPE,))
                reply = await self._cluster.call_on(connection, request, ListGroupsResponse)
                if reply.error_code:
                    raise kafka_error(reply.error_code, f"groups of broker {node}")
                return [
                    GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type)
                    for g in reply.groups
                ]

            return await self._cluster.retrying("list share groups", attempt)

        await self._cluster.refresh(())
        answers = await asyncio.gather(*(ask(node) for node in self._cluster.cache.brokers))
        return sorted({g for rows in answers for g in rows})

    async def describe(self, groups: list[str]) -> dict[str, ShareGroupDescription]:
        """ShareGroupDescribe at each coordinator."""

        async def one(group: str) -> ShareGroupDescription:
            async def attempt() -> ShareGroupDescription:
                node = await self._cluster.coordinator(group)
                request = ShareGroupDescribeRequest(group_ids=(group,))
                reply = await self._cluster.call(node, request, ShareGroupDescribeResponse)
                return _described(reply.groups[0])

            return await self._cluster.retrying(f"describe share group {group}", attempt)

        answers = await asyncio.gather(*(one(group) for group in groups))
        return {a.group_id: a for a in answers}

    async def offsets(self, group: str) -> dict[TopicPartition, SharePartitionOffset]:
        """DescribeShareGroupOffsets at the coordinator, of all partitions."""
        row = k90.DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
        request = k90.DescribeShareGroupOffsetsRequest(groups=(row,))

        async def attempt() -> dict[TopicPartition, SharePartitionOffset]:
            node = await self._cluster.coordinator(group)
            reply = await self._cluster.call(node, request, k90.DescribeShareGroupOffsetsResponse)
            (answer,) = reply.groups
            _check(answer.error_code, answer.error_message, f"share group {group}")
            found: dict[TopicPartition, SharePartitionOffset] = {}
            for topic in answer.topics:
                for p in topic.partitions:
                    tp = TopicPartition(topic.topic_name, p.partition_index)
                    _check(p.error_code, p.error_message, f"{tp.topic}-{tp.partition} of {group}")
                    if p.start_offset >= 0:
                        lag = None if p.lag < 0 else p.lag
                        found[tp] = SharePartitionOffset(p.start_offset, p.leader_epoch, lag)
            return found

        return await self._cluster.retrying(f"offsets of share group {group}", attempt)

    async def alter_offsets(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Outcomes:
        """AlterShareGroupOffsets at the coordinator; partition -> None or its error."""
        by_topic: dict[str, list[k91.AlterShareGroupOffsetsRequestPartition]] = {}
        for tp, at in offsets.items():
            row = k91.AlterShareGroupOffsetsRequestPartition(
                partition_index=tp.partition, start_offset=at.offset
            )
            by_topic.setdefault(tp.topic, []).append(row)
        request = k91.AlterShareGroupOffsetsRequest(
            group_id=group,
            topics=tuple(
                k91.AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=tuple(rows))
                for topic, rows in by_topic.items()
            ),
        )

        async def attempt() -> Outcomes:
            node = await self._cluster.coordinator(group)
            reply = await self._cluster.call(node, request, k91.AlterShareGroupOffsetsResponse)
            _check(reply.error_code, reply.error_message, f"share group {group}")
            return {
                TopicPartition(t.topic_name, p.partition_index): _error(
                    p.error_code, p.error_message, f"{t.topic_name}-{p.partition_index} of {group}"
                )
                for t in reply.responses
                for p in t.partitions
            }

        return await self._cluster.retrying(f"alter offsets of share group {group}", attempt)

    async def delete_offsets(self, group: str, topics: list[str]) -> dict[str, KafkaError | None]:
        """DeleteShareGroupOffsets at the coordinator; topic -> None or its error."""
        request = k92.DeleteShareGroupOffsetsRequest(
            group_id=group,
            topics=tuple(k92.DeleteShareGroupOffsetsRequestTopic(topic_name=t) for t in topics),
        )

        async def attempt() -> dict[str, KafkaError | None]:
            node = await self._cluster.coordinator(group)
            reply = await self._cluster.call(node, request, k92.DeleteShareGroupOffsetsResponse)
            _check(reply.error_code, reply.error_message, f"share group {group}")
            return {
                t.topic_name: _error(t.error_code, t.error_message, f"{t.topic_name} of {group}")
                for t in reply.responses
            }

        return await self._cluster.retrying(f"delete offsets of share group {group}", attempt)


class ShareGroupVerbs:
    """The methods of `Admin` about share groups."""

    _share_groups: ShareGroupCalls

    async def list_share_groups(self) -> list[GroupListing]:
        """The share groups of every coordinator, by id. Raises KafkaError(UNSUPPORTED_VERSION) when
        a broker has none, as do the other calls about share groups."""
        return await self._share_groups.list_groups()

    async def describe_share_groups(
        self, groups: Iterable[str]
    ) -> dict[str, ShareGroupDescription]:
        """State and members of each share group; the state of one that does not exist, or is of
        another type, is "Dead"."""
        return await self._share_groups.describe(arguments.names("groups", groups))

    async def list_share_group_offsets(
        self, group: str
    ) -> dict[TopicPartition, SharePartitionOffset]:
        """Where each partition of a share group begins: the records before are settled. Empty for a
        group that does not exist, or is of another type."""
        return await self._share_groups.offsets(arguments.name("group", group))

    async def alter_share_group_offsets(
        self, group: str, offsets: ByPartition[OffsetAndMetadata | int]
    ) -> Outcomes:
        """Let partitions begin at these offsets, of a share group without members, which is made if
        it does not exist; what was settled or acquired behind them is forgotten. Partition -> None
        or its error.

        Raises NonEmptyGroupError; GroupIdNotFoundError for a group of another type.
        """
        rows = arguments.offsets_by_partition(offsets)
        return await self._share_groups.alter_offsets(arguments.name("group", group), rows)

    async def delete_share_group_offsets(
        self, group: str, topics: Iterable[str]
    ) -> dict[str, KafkaError | None]:
        """Forget topics of a share group without members; topic -> None or its error.

        Raises NonEmptyGroupError, GroupIdNotFoundError.
        """
        rows = arguments.names("topics", topics)
        return await self._share_groups.delete_offsets(arguments.name("group", group), rows)


def _described(group: DescribedGroup) -> ShareGroupDescription:
    missing = error_code(group.error_code) is ErrorCode.GROUP_ID_NOT_FOUND
    if group.error_code and not missing:
        raise kafka_error(group.error_code, group.error_message or f"group {group.group_id}")
    members = tuple(
        ShareMemberDescription(
            m.member_id,
            m.member_epoch,
            m.client_id,
            m.client_host,
            m.rack_id,
            tuple(m.subscribed_topic_names),
            tuple(
                TopicPartition(t.topic_name, p)
                for t in m.assignment.topic_partitions
                for p in t.partitions
            ),
        )
        for m in group.members
    )
    return ShareGroupDescription(
        group.group_id,
        "Dead" if missing else group.group_state,
        group.group_epoch,
        group.assignment_epoch,
        group.assignor_name,
        members,
    )


def _error(code: int, message: str | None, what: str) -> KafkaError | None:
    return kafka_error(code, message or what) if code else None


def _check(code: int, message: str | None, what: str) -> None:
    error = _error(code, message, what)
    if error is not None:
        raise error
