"""Requests over a real socket against a real log: order, parking, sessions, slices, errors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode
from headwater.ports.authorizer import Authorizer
from headwater.ports.remote_log import RemoteSlice
from headwater.records.builder import build_batch
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.wire.apis.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from headwater.wire.apis.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from headwater.wire.apis.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.apis.k21_delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from headwater.wire.framing import encode_request
from headwater_broker.api.broker_controls import NO_CONTROLS, BrokerControls
from solo_broker import BROKER_EPOCH, SoloBroker

Scenario = Callable[[SoloBroker, Connection], Awaitable[None]]


def serve(
    tmp_path: Path,
    scenario: Scenario,
    authorizer: Authorizer | None = None,
    racks: Mapping[int, str] | None = None,
    controls: BrokerControls = NO_CONTROLS,
    **properties: str,
) -> None:
    """Run the scenario with a broker of these properties and a connection to it, 30 s at most."""

    async def run() -> None:
        broker = SoloBroker(tmp_path, **properties)
        broker.authorizer = authorizer or broker.authorizer
        broker.racks = dict(racks or broker.racks)
        broker.controls = controls
        async with broker:
            connection = await open_connection("127.0.0.1", broker.port)
            await asyncio.wait_for(scenario(broker, connection), 30)
            connection.close()

    asyncio.run(run())


def batch(count: int = 1, size: int = 10, at: int = 1_795_000_000_000) -> bytes:
    return bytes(build_batch((at + i, None, bytes([i % 251]) * size, ()) for i in range(count)))


def produce_request(
    topic: str, data: bytes | None, acks: int = 1, timeout_ms: int = 20_000, **key: Any
) -> ProduceRequest:
    entry = PartitionProduceData(index=key.pop("partition", 0), records=data)
    return ProduceRequest(
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=(TopicProduceData(name=topic, partition_data=(entry,), **key),),
    )


async def produce(c: Connection, topic: str, data: bytes, acks: int = 1, **more: Any) -> Any:
    version = more.pop("version", 9)
    request = produce_request(topic, data, acks, **more)
    reply = await c.call(request, ProduceResponse, version=version)
    return reply.responses[0].partition_responses[0]


def fetch_request(topic: str, offset: int, **options: Any) -> FetchRequest:
    part = FetchPartition(
        partition=options.pop("partition", 0),
        fetch_offset=offset,
        partition_max_bytes=options.pop("partition_max_bytes", 1 << 20),
        current_leader_epoch=options.pop("leader_epoch", -1),
    )
    fetch = FetchTopic(
        topic=topic, topic_id=options.pop("topic_id", FetchTopic().topic_id), partitions=(part,)
    )
    return FetchRequest(
        max_wait_ms=options.pop("max_wait_ms", 0),
        min_bytes=options.pop("min_bytes", 1),
        topics=(fetch,),
        **options,
    )


async def fetch(c: Connection, topic: str, offset: int, **options: Any) -> PartitionData:
    version = options.pop("version", 11)
    request = fetch_request(topic, offset, **options)
    reply = await c.call(request, FetchResponse, version=version)
    return reply.responses[0].partitions[0]


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t")
        key = {"topic_id": topic_id} if version >= 13 else {}
        for acks in (1, -1):
            await produce(c, "" if key else "t", batch(3), acks, version=version, **key)
        row = await produce(c, "" if key else "t", batch(), version=version, **key)
        assert (row.error_code, row.base_offset) == (0, 6)

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t")
        await produce(c, "t", batch(5))
        key = {"topic_id": topic_id} if version >= 13 else {}
        name = "" if key else "t"
        read = await fetch(c, name, 0, version=version, **key)
        assert (read.error_code, read.high_watermark, read.last_stable_offset) == (0, 5, 5)
        assert bytes(read.records or b"")[61:] == batch(5)[61:]
        at_end = await fetch(c, name, 5, version=version, **key)
        assert (at_end.error_code, len(at_end.records or b"")) == (0, 0)
        beyond = await fetch(c, name, 6, version=version, **key)
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    serve(tmp_path, scenario)


def test_large_slices_go_out_whole_also_to_a_slow_reader(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        for _ in range(40):
            await produce(c, "t", batch(900, 1000))
        request = fetch_request("t", 0, partition_max_bytes=50 << 20)
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, limit=1 << 16)
        body = encode_request(request, 11, 1, None)
        writer.write((len(body).to_bytes(4, "big") + body) * 2)
        replies = []
        for _ in range(2):
            size = int.from_bytes(await reader.readexactly(4), "big")
            replies.append(await reader.readexactly(size))
        assert len(replies[0]) > 36_000_000
        assert replies[0] == replies[1]
        log = broker.replicas.lookup("t", 0).log
        stored = Path(log.path, "0" * 20 + ".log").read_bytes()
        assert replies[0].endswith(stored)
        writer.close()

    serve(tmp_path, scenario)


def test_replies_come_in_the_order_of_requests_also_behind_a_parked_one(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        other = await open_connection("127.0.0.1", broker.port)
        parked = asyncio.create_task(fetch(c, "t", 0, max_wait_ms=20_000))
        behind = asyncio.create_task(
            c.call(ApiVersionsRequest(client_software_name="a"), ApiVersionsResponse, version=0)
        )
        while not broker.services.purgatories.fetch.parked:
            await asyncio.sleep(0.001)
        assert not behind.done()
        await produce(other, "t", batch(2))
        read, versions = await asyncio.gather(parked, behind)
        assert read.high_watermark == 2
        assert versions.error_code == 0
        assert broker.services.purgatories.fetch.parked == 0
        other.close()

    serve(tmp_path, scenario)


def test_a_parked_fetch_answers_empty_at_its_deadline(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        read = await fetch(c, "t", 0, max_wait_ms=30)
        assert (read.error_code, len(read.records or b"")) == (0, 0)

    serve(tmp_path, scenario)


def test_min_bytes_waits_for_enough(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        other = await open_connection("127.0.0.1", broker.port)
        size = len(batch(1, 100))
        parked = asyncio.create_task(fetch(c, "t", 0, max_wait_ms=20_000, min_bytes=3 * size))
        for count in range(3):
            assert not parked.done(), count
            await produce(other, "t", batch(1, 100))
        assert len((await parked).records or b"") == 3 * size
        other.close()

    serve(tmp_path, scenario)


def test_acks_all_waits_for_the_follower_and_times_out_without_it(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", replicas=(1, 2))
        late = await produce(c, "t", batch(), -1, timeout_ms=30)
        assert late.error_code == ErrorCode.REQUEST_TIMED_OUT
        waiting = asyncio.create_task(produce(c, "t", batch(), -1))
        follower = await open_connection("127.0.0.1", broker.port)

        async def follow(offset: int) -> PartitionData:
            state = ReplicaState(replica_id=2, replica_epoch=BROKER_EPOCH)
            return await fetch(
                follower, "", offset, topic_id=topic_id, version=17, replica_state=state
            )

        read = await follow(0)
        while len(read.records or b"") < 2 * len(batch()):
            read = await follow(0)
        assert read.high_watermark == 0
        assert not waiting.done()
        assert (await follow(2)).high_watermark == 2
        assert (await waiting).error_code == 0
        follower.close()

    serve(tmp_path, scenario)


def test_losing_leadership_answers_what_is_parked_at_once(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2))
        other = await open_connection("127.0.0.1", broker.port)
        parked = asyncio.create_task(produce(c, "t", batch(), -1))
        named = fetch(other, "t", 0, max_wait_ms=20_000, leader_epoch=0)
        read = asyncio.create_task(named)
        third = await open_connection("127.0.0.1", broker.port)
        old = asyncio.create_task(fetch(third, "t", 0, max_wait_ms=20_000, version=10))
        purgatories = broker.services.purgatories
        while not (purgatories.produce.parked and purgatories.fetch.parked == 2):
            await asyncio.sleep(0.001)
        broker.create_topic("t", replicas=(1, 2), leader=2, epoch=1)
        assert (await parked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await read).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await old).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        other.close()
        third.close()

    serve(tmp_path, scenario)


def test_too_few_in_sync_replicas_refuse_acks_all_before_the_append(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2), isr=(1,), configs={"min.insync.replicas": "2"})
        refused = await produce(c, "t", batch(), -1)
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert (await produce(c, "t", batch(), 1)).base_offset == 0

    serve(tmp_path, scenario)


@pytest.mark.parametrize(
    ("topic", "data", "acks", "partition", "code"),
    [
        ("nope", batch(), 1, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", batch(), 1, 9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", batch(), 2, 0, ErrorCode.INVALID_REQUIRED_ACKS),
        ("t", None, 1, 0, ErrorCode.INVALID_RECORD),
        ("t", batch()[:-1] + b"\xff", 1, 0, ErrorCode.CORRUPT_MESSAGE),
        ("__consumer_offsets", batch(), 1, 0, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("t", batch(900, 2000), 1, 0, ErrorCode.MESSAGE_TOO_LARGE),
    ],
)
def test_produce_refusals(
    tmp_path: Path, topic: str, data: bytes, acks: int, partition: int, code: ErrorCode
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        broker.create_topic("__consumer_offsets")
        row = await produce(c, topic, data, acks, partition=partition)
        assert ErrorCode(row.error_code) is code
        assert (row.base_offset, bool(row.error_message)) == (-1, True)
        assert (await produce(c, "t", batch())).base_offset == 0

    serve(tmp_path, scenario)


def test_acks_zero_says_nothing_and_an_error_closes_the_connection(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        for topic in ("t", "nope"):
            body = encode_request(produce_request(topic, batch(), 0), 7, 1, None)
            writer.write(len(body).to_bytes(4, "big") + body)
        assert await reader.read() == b""
        writer.close()
        assert (await produce(c, "t", batch())).base_offset == 1

    serve(tmp_path, scenario)


def test_an_incremental_fetch_names_only_what_changed(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", 2)
        await produce(c, "t", batch(), partition=1)
        parts = tuple(
            FetchPartition(partition=p, fetch_offset=0, partition_max_bytes=1 << 20) for p in (0, 1)
        )
        topics = (FetchTopic(topic_id=topic_id, partitions=parts),)

        async def ask(session: int, epoch: int, topics: Any = ()) -> FetchResponse:
            request = FetchRequest(session_id=session, session_epoch=epoch, topics=topics)
            return await c.call(request, FetchResponse, version=17)

        first = await ask(0, 0, topics)
        assert first.session_id > 0
        assert [p.partition_index for p in first.responses[0].partitions] == [0, 1]
        moved = FetchPartition(partition=1, fetch_offset=1, partition_max_bytes=1 << 20)
        quiet = await ask(
            first.session_id, 1, (FetchTopic(topic_id=topic_id, partitions=(moved,)),)
        )
        assert (quiet.responses, quiet.session_id) == ((), first.session_id)
        await produce(c, "t", batch(), partition=0)
        changed = await ask(first.session_id, 2)
        assert [p.partition_index for t in changed.responses for p in t.partitions] == [0]
        wrong = await ask(first.session_id, 2)
        assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        unknown = await ask(first.session_id ^ 1, 5)
        assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    serve(tmp_path, scenario)


def test_one_whole_batch_even_beyond_max_bytes(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        for _ in range(3):
            await produce(c, "t", batch(1, 5000))
        read = await fetch(c, "t", 1, partition_max_bytes=10)
        assert len(read.records or b"") == len(batch(1, 5000))

    serve(tmp_path, scenario)


def test_fencing_by_leader_epoch_names_the_leader(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", epoch=0)
        broker.create_topic("t", epoch=3)
        old = await fetch(c, "", 0, topic_id=topic_id, version=17, leader_epoch=1)
        assert old.error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (old.current_leader.leader_id, old.current_leader.leader_epoch) == (1, 3)
        newer = await fetch(c, "", 0, topic_id=topic_id, version=17, leader_epoch=9)
        assert newer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    serve(tmp_path, scenario)


def test_metadata_all_none_and_created_on_demand(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", 3)

        async def ask(topics: Any, version: int = 12, **more: Any) -> MetadataResponse:
            request = MetadataRequest(topics=topics, **more)
            return await c.call(request, MetadataResponse, version=version)

        everything = await ask(None)
        assert [(b.node_id, b.port) for b in everything.brokers] == [(1, broker.port)]
        [topic] = everything.topics
        assert (topic.name, topic.topic_id, len(topic.partitions)) == ("t", topic_id, 3)
        assert (await ask(())).topics == ()
        assert len((await ask((), version=0)).topics) == 1
        by_id = await ask((MetadataRequestTopic(name=None, topic_id=topic_id),))
        assert by_id.topics[0].name == "t"
        new = (MetadataRequestTopic(name="new"),)
        unknown = await ask(new, allow_auto_topic_creation=False)
        assert unknown.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        bad = await ask((MetadataRequestTopic(name="no/slash"),))
        assert bad.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        first = await ask(new)
        assert first.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION  # not 5: as Kafka
        assert (await ask(new)).topics[0].error_code == 0
        assert broker.forwarded == [19]

    serve(tmp_path, scenario)


def test_list_offsets_ends_timestamps_and_deleted_records(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        for index in range(4):
            await produce(c, "t", batch(10, at=1_795_000_000_000 + 100 * index))

        async def ask(timestamp: int, version: int = 9) -> Any:
            part = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
            request = ListOffsetsRequest(
                replica_id=-1, topics=(ListOffsetsTopic(name="t", partitions=(part,)),)
            )
            reply = await c.call(request, ListOffsetsResponse, version=version)
            return reply.topics[0].partitions[0]

        assert [(await ask(special)).offset for special in (-1, -2, -4)] == [40, 0, 0]
        assert (await ask(-3)).offset == 39
        assert (await ask(-5)).offset == -1
        assert (await ask(1_795_000_000_105)).offset == 15
        assert (await ask(1_795_999_999_999)).offset == -1
        assert (await ask(-3, version=6)).error_code == ErrorCode.UNSUPPORTED_VERSION
        part = DeleteRecordsPartition(partition_index=0, offset=25)
        deleted = await c.call(
            DeleteRecordsRequest(
                topics=(DeleteRecordsTopic(name="t", partitions=(part,)),), timeout_ms=1000
            ),
            DeleteRecordsResponse,
        )
        assert deleted.topics[0].partitions[0].low_watermark == 25
        assert (await ask(-2)).offset == 25
        assert (await fetch(c, "t", 3)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE

    serve(tmp_path, scenario)


def test_api_versions_are_what_is_registered(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        served = {**c.versions}
        assert served[0] == (0, 13)
        assert served[1] == (4, 18)
        assert set(served) == set(broker.listener.rows)
        assert not {71, 72} & set(served)

    serve(tmp_path, scenario)


def test_many_pipelined_requests_of_one_read_are_all_answered(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        body = b"".join(
            len(b).to_bytes(4, "big") + b
            for b in (
                encode_request(produce_request("t", batch()), 7, number, None)
                for number in range(3000)
            )
        )
        writer.write(body)
        for number in range(3000):
            size = int.from_bytes(await reader.readexactly(4), "big")
            data = await reader.readexactly(size)
            assert int.from_bytes(data[:4], "big") == number
        writer.close()

    serve(tmp_path, scenario)


class TableOf:
    """A remote log of one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[tuple[int, int]] = []

    async def read(self, topic: Any, partition: int, offset: int, max_bytes: int) -> RemoteSlice:
        self.asked.append((partition, offset))
        return RemoteSlice(str(self.path), 0, self.path.stat().st_size, offset + 1)


def test_offsets_below_the_local_start_come_from_the_table(tmp_path: Path) -> None:
    async def run() -> None:
        table = TableOf(tmp_path / "slice")
        table.path.write_bytes(batch(1, 77))
        broker = SoloBroker(tmp_path / "log")
        broker.remote_log = table
        async with broker:
            broker.create_topic("t")
            c = await open_connection("127.0.0.1", broker.port)
            for _ in range(5):
                await produce(c, "t", batch())
            log = broker.replicas.lookup("t", 0).log
            log.local_log_start_offset = 3
            read = await fetch(c, "t", 1)
            assert bytes(read.records or b"") == batch(1, 77)
            assert table.asked == [(0, 1)]
            assert (await fetch(c, "t", 3)).error_code == 0
            c.close()

    asyncio.run(run())
