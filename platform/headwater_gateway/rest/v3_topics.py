"""v3: topics and partitions."""

from __future__ import annotations

from typing import Any

from headwater.client.admin.client import EARLIEST, LATEST
from headwater.client.values import NewTopic, PartitionDescription, TopicDescription, TopicPartition
from headwater_gateway.app.errors import GatewayError
from headwater_gateway.rest.documents import INT32_MAX, Document
from headwater_gateway.rest.endpoints import Reply, RestRequest, Routes
from headwater_gateway.rest.sending import partition_not_found
from headwater_gateway.rest.v3_clusters import CLUSTER, replica
from headwater_gateway.rest.v3_resources import Cluster, ClusterIds, Row, one_named

TOPICS = f"{CLUSTER}/topics"
TOPIC = f"{TOPICS}/{{topic_name}}"
PARTITIONS = f"{TOPIC}/partitions"
PARTITION = f"{PARTITIONS}/{{partition_id}}"
ALL_MOVES = f"{TOPICS}/-/partitions/-/reassignment"


class Topics:
    """The routes of topics."""

    def __init__(self, ids: ClusterIds) -> None:
        self._ids = ids

    def add_to(self, routes: Routes, prefix: str) -> None:
        """Add the routes under `prefix`."""
        routes.read(prefix + TOPICS, self.topics)
        routes.write("POST", prefix + TOPICS, self.create)
        routes.read(prefix + ALL_MOVES, self.moves)
        routes.read(prefix + TOPIC, self.topic)
        routes.write("PATCH", prefix + TOPIC, self.grow)
        routes.write("DELETE", prefix + TOPIC, self.delete)
        routes.read(prefix + PARTITIONS, self.partitions)
        routes.read(prefix + PARTITION, self.partition)
        routes.read(f"{prefix}{PARTITION}/offset", self.offset)
        routes.read(f"{prefix}{PARTITION}/replicas", self.replicas)
        routes.read(f"{prefix}{PARTITION}/replicas/{{broker_id}}", self.one_replica)
        routes.read(f"{prefix}{PARTITIONS}/-/reassignment", self.moves)
        routes.read(f"{prefix}{PARTITION}/reassignment", self.moves)

    async def topics(self, request: RestRequest) -> Any:
        """The topics that the user may see."""
        cluster = await self._ids.of_path(request)
        found = await request.admin.describe_topics()
        rows = [_topic(cluster, topic) for _name, topic in sorted(found.items())]
        return cluster.collection("KafkaTopicList", cluster.url("topics"), rows)

    async def create(self, request: RestRequest) -> Any:
        """A new topic; with `validate_only` only whether it could be made."""
        cluster = await self._ids.of_path(request)
        document = await request.document()
        topic = new_topic(document)
        validate_only = document.flag("validate_only")
        await request.admin.create_topics([topic], validate_only=validate_only)
        if validate_only:
            return Reply(_planned(cluster, topic), 200)
        found = await request.admin.describe_topics([topic.name])
        return Reply(_topic(cluster, found[topic.name]), 201)

    async def topic(self, request: RestRequest) -> Any:
        """One topic."""
        cluster = await self._ids.of_path(request)
        return _topic(cluster, await described(request))

    async def grow(self, request: RestRequest) -> Any:
        """More partitions."""
        cluster = await self._ids.of_path(request)
        count = (await request.document()).integer("partitions_count")
        name = (await described(request)).name
        await request.admin.create_partitions({name: count})
        found = await request.admin.describe_topics([name])
        return _topic(cluster, found[name])

    async def delete(self, request: RestRequest) -> Any:
        """The topic goes."""
        await self._ids.of_path(request)
        await request.admin.delete_topics([request.part("topic_name")])

    async def partitions(self, request: RestRequest) -> Any:
        """The partitions of a topic."""
        cluster = await self._ids.of_path(request)
        topic = await described(request)
        rows = [_partition(cluster, topic.name, row) for row in topic.partitions]
        address = cluster.url("topics", topic.name, "partitions")
        return cluster.collection("KafkaPartitionList", address, rows)

    async def partition(self, request: RestRequest) -> Any:
        """One partition."""
        cluster = await self._ids.of_path(request)
        topic, row = await one_partition(request)
        return _partition(cluster, topic.name, row)

    async def offset(self, request: RestRequest) -> Any:
        """The first offset of a partition, and the one after its last record."""
        cluster = await self._ids.of_path(request)
        topic, row = await one_partition(request)
        tp = TopicPartition(topic.name, row.partition)
        first = (await request.admin.list_offsets({tp: EARLIEST}))[tp].offset
        end = (await request.admin.list_offsets({tp: LATEST}))[tp].offset
        fields = {
            "topic_name": topic.name,
            "partition_id": row.partition,
            "earliest_offset": first,
            "latest_offset": end,
        }
        address = cluster.url("topics", topic.name, "partitions", row.partition, "offset")
        name = f"topic={topic.name}/partition={row.partition}/offset"
        return cluster.resource("KafkaPartitionWithOffsets", address, name, fields)

    async def replicas(self, request: RestRequest) -> Any:
        """The replicas of a partition."""
        cluster = await self._ids.of_path(request)
        topic, row = await one_partition(request)
        address = cluster.url("topics", topic.name, "partitions", row.partition, "replicas")
        return cluster.collection("KafkaReplicaList", address, _replicas(cluster, topic, row))

    async def one_replica(self, request: RestRequest) -> Any:
        """One replica."""
        cluster = await self._ids.of_path(request)
        topic, row = await one_partition(request)
        node = request.number("broker_id")
        return one_named(
            _replicas(cluster, topic, row),
            "broker_id",
            node,
            lambda: GatewayError(404, 404, f"Broker {node} has no replica of the partition."),
        )

    async def moves(self, request: RestRequest) -> Any:
        """Reassignments in progress: of all topics, of a topic, of a partition."""
        cluster = await self._ids.of_path(request)
        found = await request.admin.list_partition_reassignments()
        parts = request.http.path_params
        topic = request.part("topic_name") if "topic_name" in parts else None
        number = request.number("partition_id") if "partition_id" in parts else None
        rows = [
            _move(cluster, tp.topic, tp.partition, move.adding_replicas, move.removing_replicas)
            for tp, move in sorted(found.items())
            if topic in (None, tp.topic) and number in (None, tp.partition)
        ]
        if number is not None:
            if not rows:
                raise GatewayError(404, 404, f"Partition {topic}-{number} is not being moved.")
            return rows[0]
        address = cluster.url("topics", topic or "-", "partitions", "-", "reassignment")
        return cluster.collection("KafkaReassignmentList", address, rows)


def new_topic(document: Document) -> NewTopic:
    """The topic that a body describes. Raises GatewayError (422)."""
    configs = {}
    if document.has("configs"):
        configs = {row.text("name"): row.setting("value") for row in document.objects("configs")}
    assignments = None
    if document.has("replicas_assignments"):
        given = document.object("replicas_assignments")
        assignments = {_key(key, document): _ids(given, key) for key in given}
    return NewTopic(
        document.text("topic_name"),
        -1 if assignments else document.integer("partitions_count", -1),
        -1 if assignments else document.integer("replication_factor", -1, 32_767),
        configs or None,
        assignments,
    )


def _key(key: str, document: Document) -> int:
    if not (key.isascii() and key.isdigit() and len(key) < 11 and int(key) <= INT32_MAX):
        raise document.wrong("replicas_assignments", "partitions as keys, broker ids as values")
    return int(key)


def _ids(given: Document, key: str) -> list[int]:
    ids = given.values(key)
    if not all(isinstance(i, int) and not isinstance(i, bool) and 0 <= i <= INT32_MAX for i in ids):
        raise given.wrong(key, "a list of broker ids")
    return ids


async def described(request: RestRequest) -> TopicDescription:
    """The topic of the path. Raises UnknownTopicOrPartitionError."""
    name = request.part("topic_name")
    found: dict[str, TopicDescription]
    found = await request.admin.describe_topics([name], patient=False)
    return found[name]


async def one_partition(request: RestRequest) -> tuple[TopicDescription, PartitionDescription]:
    """The partition of the path, and its topic. Raises GatewayError (404, 40402)."""
    topic = await described(request)
    index = request.number("partition_id")
    if index >= len(topic.partitions):
        raise partition_not_found(topic.name, index)
    return topic, topic.partitions[index]


def _replicas(cluster: Cluster, topic: TopicDescription, row: PartitionDescription) -> list[Row]:
    return [
        replica(cluster, topic.name, row.partition, node, row.leader, row.isr)
        for node in row.replicas
    ]


def _topic(cluster: Cluster, topic: TopicDescription) -> Row:
    copies = len(topic.partitions[0].replicas) if topic.partitions else 0
    return _topic_row(
        cluster, topic.name, len(topic.partitions), copies, is_internal=topic.is_internal
    )


def _planned(cluster: Cluster, topic: NewTopic) -> Row:
    count, copies = topic.num_partitions, topic.replication_factor
    if topic.assignments:
        count, copies = len(topic.assignments), len(next(iter(topic.assignments.values())))
    return _topic_row(cluster, topic.name, max(count, 0), max(copies, 0), is_internal=False)


def _topic_row(cluster: Cluster, name: str, count: int, copies: int, *, is_internal: bool) -> Row:
    here = ("topics", name)
    fields = {
        "topic_name": name,
        "is_internal": is_internal,
        "replication_factor": copies,
        "partitions_count": count,
        "partitions": cluster.related(*here, "partitions"),
        "configs": cluster.related(*here, "configs"),
        "partition_reassignments": cluster.related(*here, "partitions", "-", "reassignment"),
    }
    return cluster.resource("KafkaTopic", cluster.url(*here), f"topic={name}", fields)


def _partition(cluster: Cluster, topic: str, row: PartitionDescription) -> Row:
    here = ("topics", topic, "partitions", row.partition)
    leader = cluster.related(*here, "replicas", row.leader) if row.leader >= 0 else None
    fields = {
        "topic_name": topic,
        "partition_id": row.partition,
        "leader": leader,
        "replicas": cluster.related(*here, "replicas"),
        "reassignment": cluster.related(*here, "reassignment"),
    }
    name = f"topic={topic}/partition={row.partition}"
    return cluster.resource("KafkaPartition", cluster.url(*here), name, fields)


def _move(
    cluster: Cluster, topic: str, partition: int, adding: tuple[int, ...], removing: tuple[int, ...]
) -> Row:
    here = ("topics", topic, "partitions", partition)
    fields = {
        "topic_name": topic,
        "partition_id": partition,
        "adding_replicas": list(adding),
        "removing_replicas": list(removing),
        "replicas": cluster.related(*here, "replicas"),
    }
    name = f"topic={topic}/partition={partition}/reassignment"
    return cluster.resource("KafkaReassignment", cluster.url(*here, "reassignment"), name, fields)
