"""WriteTxnMarkers: who may send it, and what it answers in which version."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Authorizer, Operation, ResourceType
from headwater.wire.apis.k27_write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headwater_broker.log.results import AppendOrigin
from solo_broker import SoloBroker
from unit.api.test_rights import CLUSTER, Grants
from unit.log.harness import batch
from unit.network.test_data_plane import serve

CLUSTER_ACTION = Grants((Operation.CLUSTER_ACTION, *CLUSTER))
ALTER = Grants((Operation.ALTER, *CLUSTER))
NOTHING = Grants((Operation.WRITE, ResourceType.TOPIC, "t"))


def begin(broker: SoloBroker, pid: int = 1, epoch: int = 0, sequence: int = 0) -> None:
    data = batch(producer_id=pid, epoch=epoch, sequence=sequence, transactional=True)
    partition = broker.replicas.lookup("t", 0)
    partition.append(data, 1, broker.services.clock.now_ms(), AppendOrigin.COORDINATOR)


def marker(pid: int = 1, epoch: int = 1, **fields: Any) -> WritableTxnMarker:
    topic_id = fields.pop("topic_id", UUID(int=0))
    topic = WritableTxnMarkerTopic(name="t", partition_indexes=(0, 0, 3), topic_id=topic_id)
    return WritableTxnMarker(
        producer_id=pid, producer_epoch=epoch, topics=(topic,),
        **{"transaction_version": 2, "transaction_result": True, **fields},
    )  # fmt: skip


async def write(
    c: Connection, *markers: WritableTxnMarker, version: int = 2, broker_id: int = 5
) -> list[list[ErrorCode]]:
    request = WriteTxnMarkersRequest(markers=markers, broker_id=broker_id)
    reply = await c.call(request, WriteTxnMarkersResponse, version=version)
    assert [row.producer_id for row in reply.markers] == [row.producer_id for row in markers]
    return [
        [ErrorCode(p.error_code) for topic in row.topics for p in topic.partitions]
        for row in reply.markers
    ]


def test_a_broker_commits_and_each_partition_has_its_code(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t")
        begin(broker)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = await write(c, marker(topic_id=topic_id), marker(2, topic_id=UUID(int=4)))
        wrong = ErrorCode.INCONSISTENT_TOPIC_ID
        assert found == [[0, 0, unknown], [wrong, wrong, unknown]]
        partition = broker.replicas.lookup("t", 0)
        assert (partition.log.log_end_offset, partition.last_stable_offset) == (2, 2)
        assert await write(c) == []

    serve(tmp_path, scenario, CLUSTER_ACTION)


@pytest.mark.parametrize(
    ("version", "code"), [(1, ErrorCode.NONE), (2, ErrorCode.INVALID_PRODUCER_EPOCH)]
)
def test_the_transaction_version_rides_in_version_2(
    tmp_path: Path, version: int, code: ErrorCode
) -> None:
    """KIP-1228: version 1 cannot say that a marker of the open epoch is wrong."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        begin(broker)
        assert (await write(c, marker(epoch=0), version=version))[0][0] is code

    serve(tmp_path, scenario, CLUSTER_ACTION)


@pytest.mark.parametrize(
    ("rights", "broker_id", "commit", "code"),
    [
        (CLUSTER_ACTION, 5, True, ErrorCode.NONE),
        (CLUSTER_ACTION, -1, False, ErrorCode.NONE),
        (CLUSTER_ACTION, -1, True, ErrorCode.INVALID_REQUEST),
        (ALTER, -1, False, ErrorCode.NONE),
        (ALTER, -1, True, ErrorCode.INVALID_REQUEST),
        (ALTER, 5, True, ErrorCode.INVALID_REQUEST),
        (NOTHING, 5, True, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        (NOTHING, -1, False, ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
    ],
)
def test_an_operator_may_abort_and_nothing_else(
    tmp_path: Path, rights: Authorizer, broker_id: int, commit: bool, code: ErrorCode
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        begin(broker)
        found = await write(c, marker(transaction_result=commit), broker_id=broker_id)
        assert found[0][0] is code
        assert (broker.replicas.lookup("t", 0).last_stable_offset > 0) == (code is ErrorCode.NONE)

    serve(tmp_path, scenario, rights)


def test_a_marker_on_a_connection_that_was_given_up_ends_nothing(tmp_path: Path) -> None:
    """The broker has sent it again, and with version 1 the next transaction has its epoch."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        newer = await open_connection("127.0.0.1", broker.port)
        begin(broker)
        aborted = marker(epoch=0, transaction_result=False)
        assert (await write(newer, aborted, version=1))[0][0] is ErrorCode.NONE
        begin(broker, sequence=1)
        late = await write(c, aborted, version=1)
        assert late[0][0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.replicas.lookup("t", 0).last_stable_offset == 2
        assert (await write(c, aborted, version=1, broker_id=6))[0][0] is ErrorCode.NONE
        assert (await write(newer, aborted, version=1))[0][0] is ErrorCode.NONE
        newer.close()

    serve(tmp_path, scenario)


def test_requests_behind_one_that_waits_are_read(tmp_path: Path) -> None:
    """A marker that waits for its replicas holds back no other connection's."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2), isr=(1, 2))
        begin(broker)
        work = asyncio.ensure_future(write(c, marker()))
        partition = broker.replicas.lookup("t", 0)
        while partition.log.log_end_offset < 2:
            await asyncio.sleep(0)
        assert not work.done()
        partition.update_follower(2, 7, 2, broker.services.clock.monotonic())
        assert (await work)[0][0] is ErrorCode.NONE

    serve(tmp_path, scenario)


def test_an_operator_may_not_end_what_a_coordinator_will_end(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", 2)
        asked: list[int] = []

        async def claimed(producer_id: int) -> frozenset[tuple[str, int]]:
            asked.append(producer_id)
            if producer_id == 3:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "loads")
            return frozenset({("t", 0)}) if producer_id == 1 else frozenset()

        object.__setattr__(broker.services, "claimed_partitions", claimed)
        for pid in (1, 2, 3):
            begin(broker, pid)
        abort = {"transaction_result": False}
        markers = [marker(pid, **abort) for pid in (1, 2, 3)]
        fenced, none, loading = (
            ErrorCode.TRANSACTION_COORDINATOR_FENCED,
            ErrorCode.NONE,
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        )
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await write(c, *markers, broker_id=-1) == [
            [fenced, fenced, unknown],
            [none, none, unknown],
            [loading, loading, loading],
        ]
        assert asked == [1, 2, 3]
        assert list(broker.replicas.lookup("t", 0).log.producers.open_transactions) == [1, 3]
        await write(c, marker(1, **abort))
        assert asked == [1, 2, 3], "a coordinator is not asked"

    serve(tmp_path, scenario)
