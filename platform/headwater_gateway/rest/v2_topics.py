"""v2: brokers, topics, partitions, offsets."""

from __future__ import annotations

from typing import Any

from headwater.client.admin.client import EARLIEST, LATEST
from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.client.values import PartitionDescription, TopicDescription, TopicPartition
from headwater_gateway.rest.endpoints import RestRequest, Routes
from headwater_gateway.rest.sending import partition_not_found, topic_not_found


def topic_routes(routes: Routes) -> None:
    """Add the routes."""
    routes.read("/brokers", brokers)
    routes.read("/topics", topics)
    routes.read("/topics/{topic}", topic)
    routes.read("/topics/{topic}/partitions", partitions)
    routes.read("/topics/{topic}/partitions/{partition}", partition)
    routes.read("/topics/{topic}/partitions/{partition}/offsets", offsets)


async def brokers(request: RestRequest) -> Any:
    """The ids of the live brokers."""
    found = await request.admin.describe_cluster()
    return {"brokers": [broker.node_id for broker in found.brokers]}


async def topics(request: RestRequest) -> Any:
    """The names of the topics, internal ones too."""
    return await request.admin.list_topics(include_internal=True)


async def topic(request: RestRequest) -> Any:
    """A topic with its configs and partitions."""
    found = await described(request)
    configs = await request.admin.describe_configs("topic", found.name, patient=False)
    return {
        "name": found.name,
        "configs": {name: entry.value for name, entry in sorted(configs.items())},
        "partitions": [_partition(row) for row in found.partitions],
    }


async def partitions(request: RestRequest) -> Any:
    """The partitions of a topic."""
    return [_partition(row) for row in (await described(request)).partitions]


async def partition(request: RestRequest) -> Any:
    """One partition."""
    return _partition(await one_partition(request))


async def offsets(request: RestRequest) -> Any:
    """The first offset of a partition, and the one after its last record."""
    row = await one_partition(request)
    tp = TopicPartition(request.part("topic"), row.partition)
    first = await request.admin.list_offsets({tp: EARLIEST})
    end = await request.admin.list_offsets({tp: LATEST})
    return {"beginning_offset": first[tp].offset, "end_offset": end[tp].offset}


async def described(request: RestRequest, name: str = "topic") -> TopicDescription:
    """The topic of the path. Raises GatewayError (404, 40401)."""
    wanted = request.part(name)
    try:
        found = await request.admin.describe_topics([wanted], patient=False)
    except UnknownTopicOrPartitionError as error:
        raise topic_not_found(wanted) from error
    description: TopicDescription = found[wanted]
    return description


async def one_partition(request: RestRequest) -> PartitionDescription:
    """The partition of the path. Raises GatewayError (404, 40402)."""
    found = await described(request)
    index = request.number("partition")
    if index >= len(found.partitions):
        raise partition_not_found(found.name, index)
    return found.partitions[index]


def _partition(row: PartitionDescription) -> dict[str, Any]:
    replicas = [
        {"broker": node, "leader": node == row.leader, "in_sync": node in row.isr}
        for node in row.replicas
    ]
    return {"partition": row.partition, "leader": row.leader, "replicas": replicas}
