"""Which right is missing decides the code and the row: the cases where several rights meet."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation, ResourceType
from headwater.topic_names import OFFSETS_TOPIC
from headwater.wire.apis import k01_fetch as k01
from headwater.wire.apis import k03_metadata as k03
from headwater.wire.apis import k08_offset_commit as k08
from headwater.wire.apis import k15_describe_groups as k15
from headwater.wire.apis import k20_delete_topics as k20
from headwater.wire.apis import k32_describe_configs as k32
from headwater.wire.apis import k61_describe_producers as k61
from headwater.wire.apis import k75_describe_topic_partitions as k75
from headwater_broker.api.authorized_operations import NOT_REQUESTED, SUPPORTED
from solo_broker import SoloBroker
from unit.api.test_rights import Grants, cluster, topic
from unit.network.test_data_plane import fetch_request, serve

Right = tuple[Operation, ResourceType, str]
DENIED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def group(operation: Operation, name: str = "g") -> Right:
    return operation, ResourceType.GROUP, name


def bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)


@pytest.mark.parametrize(
    ("granted", "shown"),
    [
        ([cluster(Operation.CREATE)], 0),
        (
            [cluster(Operation.CREATE), cluster(Operation.DESCRIBE)],
            bits(Operation.CREATE, Operation.DESCRIBE),
        ),
    ],
)
@pytest.mark.parametrize("asks", [True, False])
def test_metadata_shows_operations_on_the_cluster_to_who_may_describe_it(
    tmp_path: Path, granted: list[Right], shown: int, asks: bool
) -> None:
    """KIP-430."""

    async def story(broker: SoloBroker, c: Connection) -> None:
        request = k03.MetadataRequest(topics=(), include_cluster_authorized_operations=asks)
        reply = await c.call(request, k03.MetadataResponse, version=10)
        assert reply.cluster_authorized_operations == (shown if asks else NOT_REQUESTED)

    serve(tmp_path, story, authorizer=Grants(*granted))


@pytest.mark.parametrize("operation", SUPPORTED[ResourceType.TOPIC])
def test_metadata_shows_the_operations_on_a_topic(tmp_path: Path, operation: Operation) -> None:
    granted = [topic(operation), topic(Operation.DESCRIBE)]

    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        named = (k03.MetadataRequestTopic(name="t"),)
        request = k03.MetadataRequest(topics=named, include_topic_authorized_operations=True)
        (row,) = (await c.call(request, k03.MetadataResponse, version=12)).topics
        assert row.topic_authorized_operations == bits(*{operation, Operation.DESCRIBE})

    serve(tmp_path, story, authorizer=Grants(*granted))


@pytest.mark.parametrize("name", ["none", "not/legal", OFFSETS_TOPIC])
@pytest.mark.parametrize("exists", [True, False])
def test_metadata_denies_each_name_alike(tmp_path: Path, name: str, exists: bool) -> None:
    """An internal topic that does not exist gets the row of one that does."""

    async def story(broker: SoloBroker, c: Connection) -> None:
        if exists and name == OFFSETS_TOPIC:
            broker.create_topic(name)
        request = k03.MetadataRequest(topics=(k03.MetadataRequestTopic(name=name),))
        (row,) = (await c.call(request, k03.MetadataResponse, version=12)).topics
        assert row == k03.MetadataResponseTopic(error_code=DENIED, name=name)

    serve(tmp_path, story, authorizer=Grants())


@pytest.mark.parametrize("operation", SUPPORTED[ResourceType.GROUP])
def test_described_groups_have_the_operations_on_them(tmp_path: Path, operation: Operation) -> None:
    granted = [group(operation), group(Operation.DESCRIBE)]

    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic(OFFSETS_TOPIC)
        request = k15.DescribeGroupsRequest(groups=("g",), include_authorized_operations=True)
        (row,) = (await c.call(request, k15.DescribeGroupsResponse, version=5)).groups
        assert row.authorized_operations == bits(*{operation, Operation.DESCRIBE})

    serve(tmp_path, story, authorizer=Grants(*granted), offsets_topic_num_partitions="1")


@pytest.mark.parametrize(
    ("granted", "codes"),
    [
        ([], [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 3),
        ([topic(Operation.READ)], [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 3),
        ([group(Operation.READ)], [DENIED] * 3),
        (
            [group(Operation.READ), topic(Operation.READ), topic(Operation.READ, "none")],
            [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, DENIED],
        ),
    ],
)
def test_a_commit_that_fails_leaves_refused_rows_their_own_codes(
    tmp_path: Path, granted: list[Right], codes: list[ErrorCode]
) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        broker.create_topic("secret")
        broker.create_topic(OFFSETS_TOPIC)
        row = k08.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
        request = k08.OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=3,
            member_id="stranger",
            topics=tuple(
                k08.OffsetCommitRequestTopic(name=name, partitions=(row,))
                for name in ("t", "none", "secret")
            ),
        )
        reply = await c.call(request, k08.OffsetCommitResponse, version=8)
        assert [t.partitions[0].error_code for t in reply.topics] == codes

    serve(tmp_path, story, authorizer=Grants(*granted), offsets_topic_num_partitions="1")


@pytest.mark.parametrize(
    ("kind", "granted", "code"),
    [
        (16, [], ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (16, [cluster(Operation.DESCRIBE_CONFIGS)], ErrorCode.INVALID_REQUEST),
        (32, [], ErrorCode.GROUP_AUTHORIZATION_FAILED),
        (32, [group(Operation.DESCRIBE_CONFIGS)], ErrorCode.NONE),
        (99, [], ErrorCode.INVALID_REQUEST),
    ],
)
def test_configs_of_groups_and_client_metrics_need_rights(
    tmp_path: Path, kind: int, granted: list[Right], code: ErrorCode
) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        resource = k32.DescribeConfigsResource(
            resource_type=kind, resource_name="g", configuration_keys=None
        )
        request = k32.DescribeConfigsRequest(resources=(resource,))
        (row,) = (await c.call(request, k32.DescribeConfigsResponse)).results
        assert row.error_code == code

    serve(tmp_path, story, authorizer=Grants(*granted))


@pytest.mark.parametrize(
    ("name", "code"), [("t", DENIED), ("none", DENIED), ("a/b", ErrorCode.INVALID_TOPIC_EXCEPTION)]
)
def test_producers_of_a_topic_without_the_right_to_read_it(
    tmp_path: Path, name: str, code: ErrorCode
) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        named = k61.TopicRequest(name=name, partition_indexes=(0,))
        request = k61.DescribeProducersRequest(topics=(named,))
        (row,) = (await c.call(request, k61.DescribeProducersResponse)).topics
        assert row.partitions[0].error_code == code

    serve(tmp_path, story, authorizer=Grants())


@pytest.mark.parametrize("name", ["t", "none"])
@pytest.mark.parametrize("session_epoch", [-1, 0, 5])
def test_a_forged_follower_is_refused_row_by_row(
    tmp_path: Path, name: str, session_epoch: int
) -> None:
    """CVE-2018-1288: a replica id gives no right. No fetch session is opened for it."""

    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        request = fetch_request(name, 0, replica_id=1, session_epoch=session_epoch)
        reply = await c.call(request, k01.FetchResponse, version=12)
        (row,) = reply.responses[0].partitions
        assert (reply.error_code, reply.session_id) == (0, 0)
        assert (row.error_code, row.high_watermark, bytes(row.records or b"")) == (DENIED, -1, b"")

    serve(tmp_path, story, authorizer=Grants(topic(Operation.READ)))


def test_a_missing_topic_has_operations_too(tmp_path: Path) -> None:
    granted = [topic(Operation.DESCRIBE), topic(Operation.DELETE)]
    shown = bits(Operation.DESCRIBE, Operation.DELETE)

    async def story(broker: SoloBroker, c: Connection) -> None:
        named = (k03.MetadataRequestTopic(name="t"),)
        request = k03.MetadataRequest(
            topics=named, allow_auto_topic_creation=False, include_topic_authorized_operations=True
        )
        (row,) = (await c.call(request, k03.MetadataResponse, version=12)).topics
        assert row.topic_authorized_operations == shown
        pages = k75.DescribeTopicPartitionsRequest(topics=(k75.TopicRequest(name="t"),))
        (found,) = (await c.call(pages, k75.DescribeTopicPartitionsResponse)).topics
        assert (found.error_code, found.topic_authorized_operations) == (row.error_code, shown)

    serve(tmp_path, story, authorizer=Grants(*granted))


@pytest.mark.parametrize(
    ("granted", "name", "code"),
    [
        ([], "none", DENIED),
        ([], "t", DENIED),
        ([topic(Operation.DESCRIBE, "none")], "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([topic(Operation.DESCRIBE)], "t", DENIED),
    ],
)
def test_who_may_see_a_topic_learns_that_it_cannot_be_deleted_as_it_is_missing(
    tmp_path: Path, granted: list[Right], name: str, code: ErrorCode
) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        request = k20.DeleteTopicsRequest(topic_names=(name,), timeout_ms=1000)
        (row,) = (await c.call(request, k20.DeleteTopicsResponse, version=5)).responses
        assert (row.name, row.error_code) == (name, code)

    serve(tmp_path, story, authorizer=Grants(*granted))
