"""Admin calls about groups and their offsets: their requests, on the loop."""

from __future__ import annotations

import asyncio

from headwater.client.admin.consumer_groups import describe_consumer_group
from headwater.client.cluster import Cluster
from headwater.client.errors import NonEmptyGroupError, error_code, kafka_error
from headwater.client.group_offsets import GroupOffsets, fetch_offsets
from headwater.client.values import (
    GroupDescription,
    GroupListing,
    MemberDescription,
    OffsetAndMetadata,
    TopicPartition,
)
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from headwater.wire.apis.k15_describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from headwater.wire.apis.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from headwater.wire.apis.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from headwater.wire.apis.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from headwater.wire.consumer_protocol import ConsumerProtocolAssignment
from headwater.wire.schema import SchemaError, decoder

NAMES_OFFSET_COMMIT_VERSION = 9
"""The last OffsetCommit version with topic names."""
CONSUMER_PROTOCOL = "consumer"


class GroupCalls:
    """Each method is one admin call, with retries, to the groups' coordinators."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def list_groups(self) -> list[GroupListing]:
        """ListGroups at every broker."""

        async def ask(node: int) -> list[GroupListing]:
            async def attempt() -> list[GroupListing]:
                reply = await self._cluster.call(node, ListGroupsRequest(), ListGroupsResponse)
                if reply.error_code:
                    raise kafka_error(reply.error_code, f"groups of broker {node}")
                return [
                    GroupListing(g.group_id, g.protocol_type, g.group_state, g.group_type)
                    for g in reply.groups
                ]

            return await self._cluster.retrying("list groups", attempt)

        await self._cluster.refresh(())
        answers = await asyncio.gather(*(ask(node) for node in self._cluster.cache.brokers))
        return sorted({g for rows in answers for g in rows})

    async def describe(self, groups: list[str]) -> dict[str, GroupDescription]:
        """ConsumerGroupDescribe at each coordinator; DescribeGroups for what is no such group."""

        async def one(group: str) -> GroupDescription:
            async def attempt() -> GroupDescription:
                node = await self._cluster.coordinator(group)
                modern = await describe_consumer_group(self._cluster, node, group)
                if modern is not None:
                    return modern
                request = DescribeGroupsRequest(groups=(group,))
                reply = await self._cluster.call(node, request, DescribeGroupsResponse)
                return _described(reply.groups[0])

            return await self._cluster.retrying(f"describe group {group}", attempt)

        answers = await asyncio.gather(*(one(group) for group in groups))
        return {a.group_id: a for a in answers}

    async def delete(self, groups: list[str]) -> dict[str, KafkaError | None]:
        """DeleteGroups at each coordinator; group -> None or its error."""

        async def one(group: str) -> KafkaError | None:
            async def attempt() -> None:
                node = await self._cluster.coordinator(group)
                request = DeleteGroupsRequest(groups_names=(group,))
                reply = await self._cluster.call(node, request, DeleteGroupsResponse)
                code = reply.results[0].error_code
                if code:
                    raise kafka_error(code, f"group {group}")

            try:
                await self._cluster.retrying(f"delete group {group}", attempt)
            except KafkaError as error:
                return error
            return None

        outcomes = await asyncio.gather(*(one(group) for group in groups))
        return dict(zip(groups, outcomes, strict=True))

    async def offsets(self, groups: list[str]) -> dict[str, GroupOffsets]:
        """OffsetFetch of several groups: one request for those of each coordinator."""
        found: dict[str, GroupOffsets] = {}

        async def attempt() -> None:
            left = tuple(group for group in groups if group not in found)
            by_node: dict[int, list[str]] = {}
            for group, node in (await self._cluster.coordinators(left)).items():
                by_node.setdefault(node, []).append(group)
            refused: list[KafkaError] = []
            for node, rows in by_node.items():
                for group, outcome in (await fetch_offsets(self._cluster, node, rows)).items():
                    if isinstance(outcome, KafkaError):
                        refused.append(outcome)
                    else:
                        found[group] = outcome
            if refused:  # one that no retry cures ends the call
                raise next((error for error in refused if not error.retriable), refused[0])

        if groups:
            what = f"offsets of group {groups[0]}" if len(groups) == 1 else "offsets of groups"
            await self._cluster.retrying(what, attempt)
        return {group: found[group] for group in groups}

    async def alter_offsets(
        self, group: str, offsets: dict[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """OffsetCommit at the coordinator, without a member id: for groups without members."""
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, index), at in offsets.items():
            row = OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=at.offset,
                committed_leader_epoch=at.leader_epoch,
                committed_metadata=at.metadata,
            )
            by_topic.setdefault(topic, []).append(row)
        request = OffsetCommitRequest(
            group_id=group,
            topics=tuple(
                OffsetCommitRequestTopic(name=topic, partitions=tuple(rows))
                for topic, rows in by_topic.items()
            ),
        )

        async def attempt() -> None:
            node = await self._cluster.coordinator(group)
            connection = await self._cluster.connection(node)
            reply = await self._cluster.call_on(
                connection,
                request,
                OffsetCommitResponse,
                version=connection.version_for(OffsetCommitRequest, NAMES_OFFSET_COMMIT_VERSION),
            )
            for topic in reply.topics:
                for row in topic.partitions:
                    what = f"offset of {topic.name}-{row.partition_index} in group {group}"
                    _raise_refusal(row.error_code, what)

        await self._cluster.retrying(f"alter offsets of group {group}", attempt)

    async def delete_offsets(
        self, group: str, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, KafkaError | None]:
        """OffsetDelete at the coordinator; partition -> None or its error."""
        by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
        for topic, index in partitions:
            row = OffsetDeleteRequestPartition(partition_index=index)
            by_topic.setdefault(topic, []).append(row)
        request = OffsetDeleteRequest(
            group_id=group,
            topics=tuple(
                OffsetDeleteRequestTopic(name=topic, partitions=tuple(rows))
                for topic, rows in by_topic.items()
            ),
        )

        async def attempt() -> dict[TopicPartition, KafkaError | None]:
            node = await self._cluster.coordinator(group)
            reply = await self._cluster.call(node, request, OffsetDeleteResponse)
            _raise_refusal(reply.error_code, f"group {group}")
            return {
                TopicPartition(t.name, p.partition_index): kafka_error(
                    p.error_code, f"offset of {t.name}-{p.partition_index} in group {group}"
                )
                if p.error_code
                else None
                for t in reply.topics
                for p in t.partitions
            }

        return await self._cluster.retrying(f"delete offsets of group {group}", attempt)


def _raise_refusal(code: int, what: str) -> None:
    if code == ErrorCode.UNKNOWN_MEMBER_ID:
        raise NonEmptyGroupError(f"{what}: the group has members; stop its consumers first")
    if code:
        raise kafka_error(code, what)


def _described(group: DescribedGroup) -> GroupDescription:
    missing = error_code(group.error_code).name == "GROUP_ID_NOT_FOUND"
    if group.error_code and not missing:
        raise kafka_error(group.error_code, group.error_message or f"group {group.group_id}")
    members = tuple(
        MemberDescription(
            m.member_id,
            m.group_instance_id,
            m.client_id,
            m.client_host,
            _assignment(group.protocol_type, m.member_assignment),
        )
        for m in group.members
    )
    return GroupDescription(
        group.group_id,
        "Dead" if missing else group.group_state,
        group.protocol_type,
        group.protocol_data,
        members,
    )


def _assignment(protocol_type: str, data: bytes | memoryview) -> tuple[TopicPartition, ...]:
    """A member's assignment in the protocol "consumer"; none in other protocols."""
    if protocol_type != CONSUMER_PROTOCOL or len(data) < 2:
        return ()
    version = min(int.from_bytes(data[:2], "big"), ConsumerProtocolAssignment.versions[1])
    try:
        assignment, _ = decoder(ConsumerProtocolAssignment, version)(data, 2)
    except SchemaError:
        return ()
    return tuple(
        TopicPartition(t.topic, p) for t in assignment.assigned_partitions for p in t.partitions
    )
