"""Admin calls about ACLs (KIP-140, KIP-290): their requests, on the loop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeVar

from headwater.client.cluster import Cluster
from headwater.client.errors import kafka_error
from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation
from headwater.security.acl import AclBinding, AclFilter
from headwater.security.acl_requests import (
    creation,
    delete_filter,
    describe_request,
    from_deleted,
    from_described,
)
from headwater.wire.apis.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from headwater.wire.apis.k29_describe_acls import DescribeAclsResponse
from headwater.wire.apis.k30_create_acls import CreateAclsRequest, CreateAclsResponse
from headwater.wire.apis.k31_delete_acls import DeleteAclsRequest, DeleteAclsResponse
from headwater.wire.apis.k60_describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)

T = TypeVar("T")


class TopicRights(NamedTuple):
    """What the caller may do with a topic. `exists` None: it may not even be described."""

    operations: frozenset[Operation]
    exists: bool | None


class AclCalls:
    """Each method is one admin call, with retries."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def describe(self, wanted: AclFilter) -> list[AclBinding]:
        """DescribeAcls."""

        async def attempt() -> list[AclBinding]:
            node = await self._cluster.any_node()
            reply = await self._cluster.call(node, describe_request(wanted), DescribeAclsResponse)
            _check(reply.error_code, reply.error_message)
            return sorted(from_described(reply.resources))

        return await self._cluster.retrying("describe ACLs", attempt)

    async def create(self, acls: Iterable[AclBinding]) -> None:
        """CreateAcls: raises the first error, with the other ACLs created."""
        request = CreateAclsRequest(creations=tuple(creation(acl) for acl in acls))

        async def attempt() -> None:
            node = await self._cluster.any_node()
            reply = await self._cluster.call(node, request, CreateAclsResponse)
            for row in reply.results:
                _check(row.error_code, row.error_message)

        await self._cluster.retrying("create ACLs", attempt)

    async def delete(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """DeleteAcls: what was deleted."""
        request = DeleteAclsRequest(filters=tuple(delete_filter(row) for row in filters))

        async def attempt() -> list[AclBinding]:
            node = await self._cluster.any_node()
            reply = await self._cluster.call(node, request, DeleteAclsResponse)
            found: set[AclBinding] = set()
            for row in reply.filter_results:
                _check(row.error_code, row.error_message)
                found.update(from_deleted(acl) for acl in row.matching_acls)
            return sorted(found)

        return await self._cluster.retrying("delete ACLs", attempt)

    async def topic_operations(self, topics: list[str]) -> dict[str, TopicRights]:
        """Metadata with the authorized operations of these topics (KIP-430)."""
        request = MetadataRequest(
            topics=tuple(MetadataRequestTopic(name=name) for name in topics),
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=True,
        )

        async def attempt() -> dict[str, TopicRights]:
            node = await self._cluster.any_node()
            reply = await self._cluster.call(node, request, MetadataResponse)
            return {t.name: _rights(t) for t in reply.topics if t.name is not None}

        return await self._cluster.retrying("describe rights on topics", attempt)

    async def cluster_operations(self) -> frozenset[Operation]:
        """DescribeCluster with the authorized operations of the cluster (KIP-430)."""
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)

        async def attempt() -> frozenset[Operation]:
            node = await self._cluster.any_node()
            reply = await self._cluster.call(node, request, DescribeClusterResponse)
            _check(reply.error_code, reply.error_message)
            return _operations(reply.cluster_authorized_operations)

        return await self._cluster.retrying("describe rights on the cluster", attempt)


def _rights(topic: MetadataResponseTopic) -> TopicRights:
    if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return TopicRights(frozenset(), exists=None)
    exists = topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TopicRights(_operations(topic.topic_authorized_operations), exists)


def _operations(bits: int) -> frozenset[Operation]:
    """Operations of a bit field; the lowest integer stands for none."""
    if bits < 0:
        return frozenset()
    return frozenset(o for o in Operation if bits >> o & 1)


def _check(code: int, text: str | None) -> None:
    if code != ErrorCode.NONE:
        raise kafka_error(code, text or "ACLs")


class AclVerbs:
    """The methods of `Admin` about ACLs."""

    _acls: AclCalls

    async def create_acls(self, acls: Iterable[AclBinding]) -> None:
        """Add ACLs; those that exist already stay.

        Raises KafkaError: SECURITY_DISABLED without an authorizer, INVALID_REQUEST. The other ACLs
        are added all the same.
        """
        await self._acls.create(list(acls))

    async def describe_acls(self, wanted: AclFilter | None = None) -> list[AclBinding]:
        """The ACLs that the filter selects, sorted; by default all. Raises KafkaError."""
        return await self._acls.describe(wanted or AclFilter())

    async def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """Delete what the filters select; the deleted ACLs, sorted. Raises KafkaError."""
        return await self._acls.delete(list(filters))

    async def topic_operations(self, topics: Iterable[str]) -> dict[str, TopicRights]:
        """The operations that the caller may do on each topic; none for a topic that does not exist
        (KIP-430)."""
        names = list(topics)
        return await self._acls.topic_operations(names) if names else {}

    async def cluster_operations(self) -> frozenset[Operation]:
        """What the caller itself may do with the cluster (KIP-430)."""
        return await self._acls.cluster_operations()
