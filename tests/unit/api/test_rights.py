"""Rights that allow a request besides the obvious one, and what responses omit without rights."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.ports.authorizer import AllowAll, Operation, Requester, ResourceType
from headwater.topic_names import OFFSETS_TOPIC
from headwater.wire.apis.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.wire.apis.k20_delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.wire.apis.k22_init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headwater.wire.apis.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from headwater.wire.apis.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from headwater_broker.api.k20_delete_topics import delete_topics
from solo_broker import SoloBroker
from unit.api.test_moving import context, play, standby
from unit.api.test_what_is_refused import epoch_ends
from unit.controller.brokers_in_memory import Cluster
from unit.controller.test_controller import create
from unit.network.test_data_plane import serve

CLUSTER = (ResourceType.CLUSTER, "kafka-cluster")
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


class Grants(AllowAll):
    """Allows these, and nothing else: (operation, resource type, name)."""

    def __init__(self, *rows: tuple[Operation, ResourceType, str]) -> None:
        self.rows = set(rows)

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return (operation, resource, name) in self.rows

    def authorize_any(
        self, requester: Requester, operation: Operation, resource: ResourceType
    ) -> bool:
        return any(row[:2] == (operation, resource) for row in self.rows)


def topic(operation: Operation, name: str = "t") -> tuple[Operation, ResourceType, str]:
    return operation, ResourceType.TOPIC, name


def cluster(operation: Operation) -> tuple[Operation, ResourceType, str]:
    return operation, *CLUSTER


@pytest.mark.parametrize(
    ("granted", "code"),
    [
        ([], DENIED),
        ([topic(Operation.DESCRIBE)], 0),
        ([cluster(Operation.CLUSTER_ACTION)], 0),
    ],
)
def test_a_follower_asks_for_epochs_of_all_topics(
    tmp_path: Path, granted: list[tuple[Operation, ResourceType, str]], code: int
) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        assert await epoch_ends(c, "t") == [code]

    serve(tmp_path, story, authorizer=Grants(*granted))


@pytest.mark.parametrize(
    ("granted", "code"),
    [
        ([], ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ([topic(Operation.READ)], ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ([topic(Operation.WRITE)], 0),
        ([cluster(Operation.IDEMPOTENT_WRITE)], 0),
    ],
)
def test_who_may_write_to_some_topic_may_write_idempotently(
    tmp_path: Path, granted: list[tuple[Operation, ResourceType, str]], code: int
) -> None:
    """KIP-679."""

    async def story(broker: SoloBroker, c: Connection) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        assert (await c.call(request, InitProducerIdResponse)).error_code == code

    serve(tmp_path, story, authorizer=Grants(*granted))


@pytest.mark.parametrize("may_describe", [True, False])
def test_operations_on_the_cluster_are_shown_to_who_may_describe_it(
    tmp_path: Path, may_describe: bool
) -> None:
    granted = [cluster(Operation.CREATE)]
    granted += [cluster(Operation.DESCRIBE)] if may_describe else []

    async def story(broker: SoloBroker, c: Connection) -> None:
        request = DescribeClusterRequest(include_cluster_authorized_operations=True)
        reply = await c.call(request, DescribeClusterResponse)
        shown = 1 << Operation.CREATE | 1 << Operation.DESCRIBE if may_describe else 0
        assert reply.cluster_authorized_operations == shown
        silent = await c.call(DescribeClusterRequest(), DescribeClusterResponse)
        assert silent.cluster_authorized_operations == -(2**31)

    serve(tmp_path, story, authorizer=Grants(*granted))


@pytest.mark.parametrize("may_see", [True, False])
def test_a_created_topic_is_described_to_who_may_see_its_configs(
    tmp_path: Path, may_see: bool
) -> None:
    granted = [topic(Operation.CREATE)] + ([topic(Operation.DESCRIBE_CONFIGS)] if may_see else [])

    async def story(broker: SoloBroker, c: Connection) -> None:
        asked = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        request = CreateTopicsRequest(topics=(asked,), timeout_ms=10_000)
        (row,) = (await c.call(request, CreateTopicsResponse, version=7)).topics
        assert row.error_code == 0 and row.topic_id == broker.view.topics["t"].topic_id
        assert row.topic_config_error_code == (0 if may_see else DENIED)
        assert row.num_partitions == (2 if may_see else -1)

    serve(tmp_path, story, authorizer=Grants(*granted))


def test_a_right_on_the_cluster_deletes_every_topic_and_a_name_is_not_learnt_by_its_id() -> None:
    async def story(cluster_: Cluster) -> None:
        asked = standby(cluster_)
        for name in ("a", "b", "c"):
            await create(asked, name, (1, 2))
        ids = [
            DeleteTopicState(name=None, topic_id=asked.view.topics[name].topic_id)
            for name in ("a", "b", "c")
        ]

        async def delete(acls: Grants, rows: list[DeleteTopicState]) -> list[tuple[object, int]]:
            request = DeleteTopicsRequest(topics=tuple(rows), timeout_ms=3000)
            reply = await delete_topics(context(asked, 6, acls), request)
            return [(row.name, row.error_code) for row in reply.responses]

        acls = Grants(topic(Operation.DESCRIBE, "b"))
        assert await delete(acls, ids) == [(None, DENIED), ("b", DENIED), (None, DENIED)]
        assert await delete(Grants(cluster(Operation.DELETE)), ids[:1]) == [("a", 0)]
        assert await delete(Grants(topic(Operation.DELETE, "b")), ids[1:2]) == [("b", 0)]
        assert set(asked.view.topics) == {"c"}

    play(story)


def test_a_refused_topic_is_not_told_to_be_internal(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        request = DescribeTopicPartitionsRequest(topics=(TopicRequest(name=OFFSETS_TOPIC),))
        (row,) = (await c.call(request, DescribeTopicPartitionsResponse)).topics
        assert (row.error_code, row.is_internal) == (DENIED, False)

    serve(tmp_path, story, authorizer=Grants())
