"""v3: consumer groups, their members, and their lags."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from headwater.client.admin.client import LATEST
from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.client.values import (
    GroupDescription,
    MemberDescription,
    OffsetAndMetadata,
    TopicPartition,
)
from headwater_gateway.app.errors import GatewayError
from headwater_gateway.rest.documents import shown
from headwater_gateway.rest.endpoints import RestRequest, Routes
from headwater_gateway.rest.v3_clusters import CLUSTER
from headwater_gateway.rest.v3_resources import Cluster, ClusterIds, Row, one_named

GROUPS = f"{CLUSTER}/consumer-groups"
GROUP = f"{GROUPS}/{{consumer_group_id}}"
CONSUMER = f"{GROUP}/consumers/{{consumer_id}}"
GROUP_NOT_FOUND = 40405


class Lag(NamedTuple):
    """How far a group is behind in one partition. `member` None: nobody reads it."""

    partition: TopicPartition
    current: int
    end: int
    member: MemberDescription | None

    @property
    def records(self) -> int:
        """Offsets between the two; never negative, as after records were deleted."""
        return max(self.end - self.current, 0)


class Groups:
    """The routes of groups."""

    def __init__(self, ids: ClusterIds) -> None:
        self._ids = ids

    def add_to(self, routes: Routes, prefix: str) -> None:
        """Add the routes under `prefix`."""
        routes.read(prefix + GROUPS, self.groups)
        routes.read(prefix + GROUP, self.group)
        routes.read(f"{prefix}{GROUP}/consumers", self.consumers)
        routes.read(prefix + CONSUMER, self.consumer)
        routes.read(f"{prefix}{CONSUMER}/assignments", self.assignments)
        routes.read(
            f"{prefix}{CONSUMER}/assignments/{{topic_name}}/partitions/{{partition_id}}",
            self.assignment,
        )
        routes.read(f"{prefix}{GROUP}/lag-summary", self.lag_summary)
        routes.read(f"{prefix}{GROUP}/lags", self.lags)
        routes.read(f"{prefix}{GROUP}/lags/{{topic_name}}/partitions/{{partition_id}}", self.lag)

    async def groups(self, request: RestRequest) -> Any:
        """The groups that the user may see."""
        cluster = await self._ids.of_path(request)
        listed = await request.admin.list_groups()
        kinds = {row.group_id: row.group_type for row in listed}
        found = await request.admin.describe_groups(list(kinds)) if kinds else {}
        rows = [_group(cluster, g, kinds[name]) for name, g in sorted(found.items())]
        address = cluster.url("consumer-groups")
        return cluster.collection("KafkaConsumerGroupList", address, rows)

    async def group(self, request: RestRequest) -> Any:
        """One group."""
        cluster = await self._ids.of_path(request)
        group = await described_group(request)
        listed = await request.admin.list_groups()
        kind = next((r.group_type for r in listed if r.group_id == group.group_id), "")
        return _group(cluster, group, kind)

    async def consumers(self, request: RestRequest) -> Any:
        """The members of a group."""
        cluster = await self._ids.of_path(request)
        group = await described_group(request)
        rows = [_consumer(cluster, group.group_id, m) for m in group.members]
        address = cluster.url("consumer-groups", group.group_id, "consumers")
        return cluster.collection("KafkaConsumerList", address, rows)

    async def consumer(self, request: RestRequest) -> Any:
        """One member."""
        cluster = await self._ids.of_path(request)
        group, member = await _member(request)
        return _consumer(cluster, group.group_id, member)

    async def assignments(self, request: RestRequest) -> Any:
        """What a member reads."""
        cluster = await self._ids.of_path(request)
        group, member = await _member(request)
        here = ("consumer-groups", group.group_id, "consumers", member.member_id, "assignments")
        rows = [_assignment(cluster, group.group_id, member, here, tp) for tp in member.assignment]
        return cluster.collection("KafkaConsumerAssignmentList", cluster.url(*here), rows)

    async def assignment(self, request: RestRequest) -> Any:
        """One partition that a member reads."""
        cluster = await self._ids.of_path(request)
        group, member = await _member(request)
        tp = TopicPartition(request.part("topic_name"), request.number("partition_id"))
        if tp not in member.assignment:
            raise GatewayError(404, 404, f"{tp.topic}-{tp.partition} is not assigned to it.")
        here = ("consumer-groups", group.group_id, "consumers", member.member_id, "assignments")
        return _assignment(cluster, group.group_id, member, here, tp)

    async def lags(self, request: RestRequest) -> Any:
        """The lag of each partition that the group has committed."""
        cluster = await self._ids.of_path(request)
        group = await described_group(request)
        rows = [_lag(cluster, group.group_id, lag) for lag in await lags_of(request, group)]
        address = cluster.url("consumer-groups", group.group_id, "lags")
        return cluster.collection("KafkaConsumerLagList", address, rows)

    async def lag(self, request: RestRequest) -> Any:
        """The lag of one partition."""
        cluster = await self._ids.of_path(request)
        group = await described_group(request)
        tp = TopicPartition(request.part("topic_name"), request.number("partition_id"))
        rows = [
            _lag(cluster, group.group_id, lag)
            for lag in await lags_of(request, group)
            if lag.partition == tp
        ]
        return one_named(
            rows,
            "topic_name",
            tp.topic,
            lambda: GatewayError(404, 404, f"{tp.topic}-{tp.partition}: nothing is committed."),
        )

    async def lag_summary(self, request: RestRequest) -> Any:
        """The largest lag of a group, and the sum."""
        cluster = await self._ids.of_path(request)
        group = await described_group(request)
        found = await lags_of(request, group)
        if not found:
            raise GatewayError(
                404, 404, f"Consumer group {shown(group.group_id)} has committed nothing."
            )
        return _summary(cluster, group.group_id, found)


async def described_group(request: RestRequest) -> GroupDescription:
    """The group of the path. Raises GatewayError (404, 40405)."""
    name = request.part("consumer_group_id")
    found: GroupDescription = (await request.admin.describe_groups([name]))[name]
    if found.state == "Dead":
        raise GatewayError(404, GROUP_NOT_FOUND, f"Consumer group {shown(name)} cannot be found.")
    return found


async def lags_of(request: RestRequest, group: GroupDescription) -> list[Lag]:
    """The lags of a group, by partition; topics that are gone are left out."""
    committed: dict[TopicPartition, OffsetAndMetadata]
    committed = await request.admin.list_group_offsets(group.group_id)
    members = {tp: member for member in group.members for tp in member.assignment}
    by_topic: dict[str, list[TopicPartition]] = {}
    for tp in sorted(committed):
        by_topic.setdefault(tp.topic, []).append(tp)
    found = []
    for partitions in by_topic.values():
        try:
            ends = await request.admin.list_offsets(dict.fromkeys(partitions, LATEST))
        except UnknownTopicOrPartitionError:
            continue
        found += [
            Lag(tp, committed[tp].offset, ends[tp].offset, members.get(tp)) for tp in partitions
        ]
    return found


async def _member(request: RestRequest) -> tuple[GroupDescription, MemberDescription]:
    group = await described_group(request)
    wanted = request.part("consumer_id")
    member = next((m for m in group.members if m.member_id == wanted), None)
    if member is None:
        raise GatewayError(404, 404, f"Consumer {shown(wanted)} cannot be found.")
    return group, member


def state_name(state: str) -> str:
    """PreparingRebalance -> PREPARING_REBALANCE."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", state).upper() or "UNKNOWN"


def _group(cluster: Cluster, group: GroupDescription, kind: str) -> Row:
    here = ("consumer-groups", group.group_id)
    fields = {
        "consumer_group_id": group.group_id,
        "is_simple": not group.protocol_type,
        "partition_assignor": group.assignor,
        "state": state_name(group.state),
        "type": kind.upper() or "CLASSIC",
        "is_mixed_consumer_group": False,
        "consumers": cluster.related(*here, "consumers"),
        "lag_summary": cluster.related(*here, "lag-summary"),
    }
    name = f"consumer-group={group.group_id}"
    return cluster.resource("KafkaConsumerGroup", cluster.url(*here), name, fields)


def _consumer(cluster: Cluster, group: str, member: MemberDescription) -> Row:
    here = ("consumer-groups", group, "consumers", member.member_id)
    fields = {
        "consumer_group_id": group,
        "consumer_id": member.member_id,
        "instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "assignments": cluster.related(*here, "assignments"),
    }
    name = f"consumer-group={group}/consumer={member.member_id}"
    return cluster.resource("KafkaConsumer", cluster.url(*here), name, fields)


def _assignment(
    cluster: Cluster,
    group: str,
    member: MemberDescription,
    here: tuple[object, ...],
    tp: TopicPartition,
) -> Row:
    parts = (tp.topic, "partitions", tp.partition)
    fields = {
        "consumer_group_id": group,
        "consumer_id": member.member_id,
        "topic_name": tp.topic,
        "partition_id": tp.partition,
        "partition": cluster.related("topics", *parts),
        "lag": cluster.related("consumer-groups", group, "lags", *parts),
    }
    name = (
        f"consumer-group={group}/consumer={member.member_id}"
        f"/assignment=topic={tp.topic}/partition={tp.partition}"
    )
    address = cluster.url(*here, *parts)
    return cluster.resource("KafkaConsumerAssignment", address, name, fields)


def _lag(cluster: Cluster, group: str, lag: Lag) -> Row:
    tp, member = lag.partition, lag.member
    fields = {
        "consumer_group_id": group,
        "topic_name": tp.topic,
        "partition_id": tp.partition,
        "consumer_id": member.member_id if member else "",
        "instance_id": member.group_instance_id if member else None,
        "client_id": member.client_id if member else "",
        "current_offset": lag.current,
        "log_end_offset": lag.end,
        "lag": lag.records,
    }
    address = cluster.url("consumer-groups", group, "lags", tp.topic, "partitions", tp.partition)
    name = f"consumer-group={group}/lag=topic={tp.topic}/partition={tp.partition}"
    return cluster.resource("KafkaConsumerLag", address, name, fields)


def _summary(cluster: Cluster, group: str, found: list[Lag]) -> Row:
    most = max(found, key=lambda lag: lag.records)
    tp, member = most.partition, most.member
    here = ("consumer-groups", group)
    consumer = member.member_id if member else ""
    fields = {
        "consumer_group_id": group,
        "max_lag_consumer_id": consumer,
        "max_lag_instance_id": member.group_instance_id if member else None,
        "max_lag_client_id": member.client_id if member else "",
        "max_lag_topic_name": tp.topic,
        "max_lag_partition_id": tp.partition,
        "max_lag": most.records,
        "total_lag": sum(lag.records for lag in found),
        "max_lag_consumer": cluster.related(*here, "consumers", consumer),
        "max_lag_partition": cluster.related("topics", tp.topic, "partitions", tp.partition),
    }
    name = f"consumer-group={group}/lag-summary"
    address = cluster.url(*here, "lag-summary")
    return cluster.resource("KafkaConsumerGroupLagSummary", address, name, fields)
