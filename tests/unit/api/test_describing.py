"""DescribeLogDirs, DescribeProducers, DescribeTopicPartitions: over a socket, on a real log."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path

import pytest

from headwater.client.admin.client import Admin
from headwater.client.connection import Connection
from headwater.client.errors import UnknownTopicOrPartitionError
from headwater.client.values import ReplicaInfo, TopicPartition
from headwater.errors import ErrorCode
from headwater.ports.authorizer import AllowAll, Operation, Requester, ResourceType
from headwater.records.builder import BatchBuilder
from headwater.system_files import SystemFile
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.wire.apis.k01_fetch import FetchResponse
from headwater.wire.apis.k35_describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from headwater.wire.apis.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
)
from headwater.wire.apis.k61_describe_producers import TopicRequest as ProducersTopic
from headwater.wire.apis.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from solo_broker import SoloBroker
from unit.network.test_data_plane import fetch_request, serve

NOW_MS = 1_795_000_000_000


class Denies(AllowAll):
    """Refuses one operation on one kind of resource."""

    def __init__(self, operation: Operation, resource: ResourceType) -> None:
        self._refused = (operation, resource)

    def authorize(
        self, requester: Requester, operation: Operation, resource: ResourceType, name: str
    ) -> bool:
        return (operation, resource) != self._refused


async def write(c: Connection, topic: str, *, pid: int = -1, sequence: int = -1) -> None:
    builder = BatchBuilder()
    builder.append(NOW_MS, None, b"value")
    epoch = -1 if pid < 0 else 3
    data = builder.build(producer_id=pid, producer_epoch=epoch, base_sequence=sequence)
    row = PartitionProduceData(index=0, records=bytes(data))
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=(TopicProduceData(name=topic, partition_data=(row,)),),
    )
    reply = await c.call(request, ProduceResponse, version=9)
    assert reply.responses[0].partition_responses[0].error_code == 0


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_log_dirs_name_every_folder_and_what_is_in_it(tmp_path: Path, version: int) -> None:
    folders = [str(tmp_path / name) for name in ("a", "b")]

    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", 3)
        await write(c, "t")
        request = DescribeLogDirsRequest(topics=None)
        reply = await c.call(request, DescribeLogDirsResponse, version=version)
        assert [row.log_dir for row in reply.results] == folders
        found = {
            (t.name, p.partition_index): p.partition_size
            for row in reply.results
            for t in row.topics
            for p in t.partitions
        }
        size = broker.replicas.lookup("t", 0).log.size_bytes
        assert size > 0
        assert found == {("t", 0): size, ("t", 1): 0, ("t", 2): 0}
        for row in reply.results:
            assert row.error_code == 0
            held = {p.partition_index for t in row.topics for p in t.partitions}
            assert held == {p for p in range(3) if (Path(row.log_dir) / f"t-{p}").is_dir()}
            if version >= 4:
                assert row.total_bytes >= row.usable_bytes > 0
        asked = DescribableLogDirTopic(topic="t", partitions=(1, 9))
        one = await c.call(
            DescribeLogDirsRequest(topics=(asked,)), DescribeLogDirsResponse, version=version
        )
        rows = [p.partition_index for row in one.results for t in row.topics for p in t.partitions]
        assert rows == [1] and len(one.results) == 2

    serve(tmp_path, story, log_dirs=",".join(folders))


def test_a_failed_folder_is_named_with_its_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [str(tmp_path / name) for name in ("a", "b")]

    def fail(self: SystemFile, position: int, size: int) -> bytes:
        raise OSError(errno.EIO, "input/output error", self.path)

    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", 2)
        await write(c, "t")
        monkeypatch.setattr(SystemFile, "read_at", fail)
        (row,) = (await c.call(fetch_request("t", 0), FetchResponse, version=11)).responses
        assert row.partitions[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        reply = await c.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        first, second = reply.results
        assert (first.error_code, first.topics) == (ErrorCode.KAFKA_STORAGE_ERROR, ())
        assert second.error_code == 0
        assert [p.partition_index for t in second.topics for p in t.partitions] == [1]

    serve(tmp_path, story, log_dirs=",".join(folders))


def test_log_dirs_are_for_those_who_may_describe_the_cluster(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        reply = await c.call(DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse)
        assert reply.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert reply.results == ()

    serve(tmp_path, story, Denies(Operation.DESCRIBE, ResourceType.CLUSTER))


async def producers(c: Connection, topic: str, *partitions: int) -> list[PartitionResponse]:
    asked = ProducersTopic(name=topic, partition_indexes=partitions)
    request = DescribeProducersRequest(topics=(asked,))
    reply = await c.call(request, DescribeProducersResponse)
    assert [t.name for t in reply.topics] == [topic]
    return list(reply.topics[0].partitions)


def test_producers_of_a_partition(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", 2)
        await write(c, "t")
        for pid, sequence in ((70, 0), (70, 1), (9, 0)):
            await write(c, "t", pid=pid, sequence=sequence)
        written, untouched, unknown = await producers(c, "t", 0, 1, 2)
        rows = [
            (p.producer_id, p.producer_epoch, p.last_sequence, p.last_timestamp)
            for p in written.active_producers
        ]
        assert rows == [(9, 3, 0, NOW_MS), (70, 3, 1, NOW_MS)]
        assert {p.current_txn_start_offset for p in written.active_producers} == {-1}
        assert (untouched.error_code, untouched.active_producers) == (0, ())
        assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        broker.replicas.lookup("t", 0).fail_storage("gone")
        failed = (await producers(c, "t", 0))[0]
        assert failed.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        illegal = (await producers(c, "no/name", 0))[0]
        assert illegal.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    serve(tmp_path, story)


def test_producers_are_for_readers_of_the_topic(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        row = (await producers(c, "t", 0))[0]
        assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    serve(tmp_path, story, Denies(Operation.READ, ResourceType.TOPIC))


async def page(
    c: Connection, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> DescribeTopicPartitionsResponse:
    at = None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1])
    request = DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=n) for n in names), response_partition_limit=limit, cursor=at
    )
    return await c.call(request, DescribeTopicPartitionsResponse)


def shown(reply: DescribeTopicPartitionsResponse) -> dict[str | None, list[int]]:
    return {t.name: [p.partition_index for p in t.partitions] for t in reply.topics}


def test_topic_partitions_page_by_page(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        for name, count in (("b", 3), ("a", 2), ("c", 1)):
            broker.create_topic(name, count)
        whole = await page(c)
        assert shown(whole) == {"a": [0, 1], "b": [0, 1, 2], "c": [0]}
        assert whole.next_cursor is None
        row = whole.topics[0].partitions[0]
        assert (row.leader_id, row.replica_nodes, row.isr_nodes) == (1, (1,), (1,))
        assert (row.eligible_leader_replicas, row.last_known_elr) == ((), ())
        seen: list[tuple[str | None, int]] = []
        cursor: tuple[str, int] | None = None
        for _ in range(6):
            reply = await page(c, limit=2, cursor=cursor)
            seen += [(name, index) for name, rows in shown(reply).items() for index in rows]
            if reply.next_cursor is None:
                break
            cursor = (reply.next_cursor.topic_name, reply.next_cursor.partition_index)
        assert seen == [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2), ("c", 0)]
        assert shown(await page(c, "c", "b", limit=0)) == {"b": [0]}

    serve(tmp_path, story)


def test_topic_partitions_tell_who_is_eligible_to_lead(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2, 3), isr=(1,), elr=(3,))
        (row,) = (await page(c, "t")).topics[0].partitions
        told = (row.isr_nodes, row.eligible_leader_replicas, row.last_known_elr)
        assert told == ((1,), (3,), ())

    serve(tmp_path, story)


def test_the_last_isr_of_an_offline_partition_is_eligible_where_it_is_down(tmp_path: Path) -> None:
    """A member that runs and may not lead has lost its disk: as in Kafka it is only the last known
    ELR, and that only when nobody is eligible."""

    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("down", replicas=(3,), leader=-1)
        broker.create_topic("wiped", replicas=(1, 2), isr=(1,), leader=-1)
        broker.create_topic("both", replicas=(1, 2, 3), isr=(1, 3), elr=(2,), leader=-1)
        rows = {t.name: t.partitions[0] for t in (await page(c)).topics}
        told = {
            name: (row.isr_nodes, row.eligible_leader_replicas, row.last_known_elr)
            for name, row in rows.items()
        }
        assert told == {
            "down": ((), (3,), ()),
            "wiped": ((), (), (1,)),
            "both": ((), (3, 2), ()),
        }

    serve(tmp_path, story)


def test_topic_partitions_that_cannot_be_told(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        reply = await page(c, "t", "nowhere", "no/name")
        assert {t.name: t.error_code for t in reply.topics} == {
            "t": 0,
            "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            "no/name": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        for cursor in (("t", -1), ("u", 0)):
            wrong = await page(c, "t", cursor=cursor)
            assert {t.error_code for t in wrong.topics} == {ErrorCode.INVALID_REQUEST}

    serve(tmp_path, story)


def test_topics_that_may_not_be_described(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        named = await page(c, "t")
        assert [t.error_code for t in named.topics] == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert (await page(c)).topics == ()

    serve(tmp_path, story, Denies(Operation.DESCRIBE, ResourceType.TOPIC))


def test_the_admin_client_tells_the_same(tmp_path: Path) -> None:
    async def story(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        await write(c, "t", pid=5, sequence=0)

        def ask() -> None:
            with Admin(f"127.0.0.1:{broker.port}") as admin:
                (folder,) = admin.describe_log_dirs()[1]
                assert (folder.path, folder.error) == (str(tmp_path), None)
                size = broker.replicas.lookup("t", 0).log.size_bytes
                assert folder.replicas == {("t", 0): ReplicaInfo(size, 0, False)}
                (producer,) = admin.describe_producers([("t", 0)])[TopicPartition("t", 0)]
                assert (producer.producer_id, producer.last_sequence) == (5, 0)
                assert producer.current_transaction_start_offset is None
                with pytest.raises(UnknownTopicOrPartitionError):
                    admin.describe_producers([("t", 7)])

        await asyncio.to_thread(ask)

    serve(tmp_path, story)
