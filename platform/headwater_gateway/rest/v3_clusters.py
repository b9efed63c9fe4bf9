"""v3: the cluster and its brokers."""

from __future__ import annotations

from typing import Any

from headwater.client.values import Broker
from headwater_gateway.app.errors import GatewayError
from headwater_gateway.rest.endpoints import RestRequest, Routes
from headwater_gateway.rest.v3_resources import Cluster, ClusterIds, Row

CLUSTER = "/clusters/{cluster_id}"


class Clusters:
    """The routes of clusters and brokers."""

    def __init__(self, ids: ClusterIds) -> None:
        self._ids = ids

    def add_to(self, routes: Routes, prefix: str) -> None:
        """Add the routes under `prefix`."""
        routes.read(f"{prefix}/clusters", self.clusters)
        routes.read(f"{prefix}{CLUSTER}", self.cluster)
        routes.read(f"{prefix}{CLUSTER}/brokers", self.brokers)
        routes.read(f"{prefix}{CLUSTER}/brokers/{{broker_id}}", self.broker)
        routes.read(
            f"{prefix}{CLUSTER}/brokers/{{broker_id}}/partition-replicas", self.partition_replicas
        )

    async def clusters(self, request: RestRequest) -> Any:
        """The one cluster."""
        cluster = Cluster(request, await self._ids.own(request))
        row = await _cluster(request, cluster)
        address = cluster.url().rpartition("/")[0]
        return cluster.collection("KafkaClusterList", address, [row])

    async def cluster(self, request: RestRequest) -> Any:
        """The cluster of the path."""
        return await _cluster(request, await self._ids.of_path(request))

    async def brokers(self, request: RestRequest) -> Any:
        """The live brokers."""
        cluster = await self._ids.of_path(request)
        found = await request.admin.describe_cluster()
        rows = [_broker(cluster, broker) for broker in found.brokers]
        return cluster.collection("KafkaBrokerList", cluster.url("brokers"), rows)

    async def broker(self, request: RestRequest) -> Any:
        """One broker."""
        cluster = await self._ids.of_path(request)
        return _broker(cluster, await live_broker(request))

    async def partition_replicas(self, request: RestRequest) -> Any:
        """The replicas of a broker, of the topics that the user may see."""
        cluster = await self._ids.of_path(request)
        node = (await live_broker(request)).node_id
        topics = await request.admin.describe_topics()
        rows = [
            replica(cluster, name, row.partition, node, row.leader, row.isr)
            for name, topic in sorted(topics.items())
            for row in topic.partitions
            if node in row.replicas
        ]
        address = cluster.url("brokers", node, "partition-replicas")
        return cluster.collection("KafkaReplicaList", address, rows)


async def live_broker(request: RestRequest) -> Broker:
    """The broker of the path. Raises GatewayError (404)."""
    node = request.number("broker_id")
    found = await request.admin.describe_cluster()
    broker: Broker | None = next((b for b in found.brokers if b.node_id == node), None)
    if broker is None:
        raise GatewayError(404, 404, f"Broker {node} cannot be found.")
    return broker


async def _cluster(request: RestRequest, cluster: Cluster) -> Row:
    found = await request.admin.describe_cluster()
    controller = (
        cluster.related("brokers", found.controller_id) if found.controller_id >= 0 else None
    )
    links = {
        name.replace("-", "_"): cluster.related(name)
        for name in ("acls", "brokers", "broker-configs", "consumer-groups", "topics")
    }
    moves = cluster.related("topics", "-", "partitions", "-", "reassignment")
    fields = {"controller": controller, **links, "partition_reassignments": moves}
    return cluster.resource("KafkaCluster", cluster.url(), "", fields)


def _broker(cluster: Cluster, broker: Broker) -> Row:
    here = ("brokers", broker.node_id)
    fields = {
        "broker_id": broker.node_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "configs": cluster.related(*here, "configs"),
        "partition_replicas": cluster.related(*here, "partition-replicas"),
    }
    return cluster.resource("KafkaBroker", cluster.url(*here), f"broker={broker.node_id}", fields)


def replica(
    cluster: Cluster, topic: str, partition: int, node: int, leader: int, isr: tuple[int, ...]
) -> Row:
    """A replica."""
    address = cluster.url("topics", topic, "partitions", partition, "replicas", node)
    fields = {
        "topic_name": topic,
        "partition_id": partition,
        "broker_id": node,
        "is_leader": node == leader,
        "is_in_sync": node in isr,
        "broker": cluster.related("brokers", node),
    }
    name = f"topic={topic}/partition={partition}/replica={node}"
    return cluster.resource("KafkaReplica", address, name, fields)
