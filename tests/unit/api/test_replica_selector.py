"""Consumers with a rack read from a follower there (KIP-392)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.client.consumer import Consumer
from headwater.client.producer import Producer
from headwater.client.values import TopicPartition
from headwater.config.rows_broker import RACK_AWARE_SELECTOR
from headwater.errors import ErrorCode
from headwater.records.batch import patch_base_offset
from headwater.wire.apis.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ReplicaState,
)
from solo_broker import BROKER_EPOCH, SoloBroker
from unit.network.test_data_plane import batch, fetch, fetch_request, produce, serve
from whole_cluster import served_in_racks

FOREVER_MS = 2**31 - 1
"""Longer than any of these tests may take."""
LEADER_SELECTOR = "org.apache.kafka.common.replica.LeaderSelector"
RACKS = {1: "a", 2: "b", 3: "b", 4: "b"}


async def follow(c: Connection, topic_id: UUID, replica: int, offset: int) -> None:
    state = ReplicaState(replica_id=replica, replica_epoch=BROKER_EPOCH)
    await fetch(c, "", offset, topic_id=topic_id, version=17, replica_state=state)


async def asked(c: Connection, offset: int, rack: str, **more: Any) -> tuple[int, int]:
    """(preferred replica, bytes of records) that the leader answers."""
    row = await fetch(c, "t", offset, rack_id=rack, **more)
    assert row.error_code == 0
    return row.preferred_read_replica, len(row.records or b"")


def test_the_leader_sends_to_an_in_sync_follower_of_the_rack_that_holds_the_offset(
    tmp_path: Path,
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", replicas=(1, 2, 3, 4), isr=(1, 2, 3))
        for _ in range(3):
            await produce(c, "t", batch())
        whole = 3 * len(batch())
        await follow(c, topic_id, 4, 3)  # the best of its rack, but not in sync
        await follow(c, topic_id, 2, 2)
        await follow(c, topic_id, 3, 1)
        await follow(c, topic_id, 3, 3)
        assert await asked(c, 0, "b") == (3, 0), "the one that holds most"
        assert await asked(c, 0, "b", max_wait_ms=FOREVER_MS) == (3, 0), "at once"
        await follow(c, topic_id, 2, 3)
        assert await asked(c, 0, "a") == (-1, whole), "the leader's own rack"
        assert await asked(c, 0, "nowhere") == (-1, whole)
        assert await asked(c, 0, "") == (-1, whole)
        await produce(c, "t", batch())
        await follow(c, topic_id, 2, 4)
        assert await asked(c, 4, "b") == (2, 0), "only one is there yet"

    serve(tmp_path, scenario, racks=RACKS, replica_selector_class=RACK_AWARE_SELECTOR)


def test_without_the_selector_the_leader_serves_all(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", replicas=(1, 2))
        await produce(c, "t", batch())
        await follow(c, topic_id, 2, 1)
        assert await asked(c, 0, "b") == (-1, len(batch()))

    serve(tmp_path, scenario, racks=RACKS, replica_selector_class=LEADER_SELECTOR)


def test_an_incremental_fetch_names_who_is_preferred(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", replicas=(1, 2))
        topics = fetch_request("", 0, topic_id=topic_id).topics
        opened = await c.call(
            FetchRequest(session_epoch=0, topics=topics, rack_id="b"), FetchResponse, version=17
        )
        await follow(c, topic_id, 2, 0)
        told = await c.call(
            FetchRequest(
                session_id=opened.session_id, session_epoch=1, max_wait_ms=FOREVER_MS, rack_id="b"
            ),
            FetchResponse,
            version=17,
        )
        assert [p.preferred_read_replica for t in told.responses for p in t.partitions] == [2]

    serve(tmp_path, scenario, racks=RACKS, replica_selector_class=RACK_AWARE_SELECTOR)


def test_a_follower_serves_its_rack_up_to_its_high_watermark(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2), leader=2, epoch=3)
        partition = broker.replicas.lookup("t", 0)
        for offset in range(3):
            data = memoryview(bytearray(batch()))
            patch_base_offset(data, 0, offset, 3)
            partition.append_as_follower(data, 2, 0)
        size = len(batch())
        near = await fetch(c, "t", 0, rack_id="a", leader_epoch=3)
        assert (near.high_watermark, len(near.records or b"")) == (2, 2 * size)
        parked = asyncio.create_task(fetch(c, "t", 2, rack_id="a", max_wait_ms=FOREVER_MS))
        while not broker.services.purgatories.fetch.parked:
            await asyncio.sleep(0)
        partition.append_as_follower(memoryview(b""), 3, 0)
        assert len((await parked).records or b"") == size, "woken by the leader's mark"
        beyond = await fetch(c, "t", 4, rack_id="a")
        assert beyond.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        older = await fetch(c, "t", 0, rack_id="a", leader_epoch=2)
        assert older.error_code == ErrorCode.FENCED_LEADER_EPOCH
        partition.stop("stopped by the controller")
        gone = await fetch(c, "t", 0, rack_id="a")
        assert gone.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    serve(tmp_path, scenario, racks=RACKS, replica_selector_class=RACK_AWARE_SELECTOR)


@pytest.mark.parametrize("version", [10, 11, 17])
@pytest.mark.parametrize("in_session", [False, True])
def test_a_follower_serves_consumers_that_name_no_rack(
    tmp_path: Path, version: int, in_session: bool
) -> None:
    """As Kafka does since Fetch v11; ReplicaVerificationTool reads all replicas so."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", replicas=(1, 2), leader=2, epoch=3)
        partition = broker.replicas.lookup("t", 0)
        for offset in range(3):
            data = memoryview(bytearray(batch()))
            patch_base_offset(data, 0, offset, 3)
            partition.append_as_follower(data, 2, 0)
        key: dict[str, Any] = {"topic_id": topic_id} if version >= 13 else {}
        if in_session:
            key["session_epoch"] = 0
        name = "" if version >= 13 else "t"
        read = await fetch(c, name, 0, version=version, **key)
        if version < 11:
            assert read.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            return
        assert (read.error_code, read.high_watermark) == (0, 2)
        assert len(read.records or b"") == 2 * len(batch())
        fenced = await fetch(c, name, 0, version=version, leader_epoch=2, **key)
        assert fenced.error_code == ErrorCode.FENCED_LEADER_EPOCH
        beyond = await fetch(c, name, 4, version=version, **key)
        assert beyond.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leader may have it"

    serve(tmp_path, scenario)


def test_followers_hear_of_a_new_high_watermark_without_waiting_for_data(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", replicas=(1, 2, 3))
        await produce(c, "t", batch())

        async def session(replica: int, session_id: int, epoch: int, offset: int) -> FetchResponse:
            row = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
            return await other[replica].call(
                FetchRequest(
                    max_wait_ms=FOREVER_MS,
                    min_bytes=1,
                    session_id=session_id,
                    session_epoch=epoch,
                    topics=(FetchTopic(topic_id=topic_id, partitions=(row,)),),
                    replica_state=ReplicaState(replica_id=replica, replica_epoch=BROKER_EPOCH),
                ),
                FetchResponse,
                version=17,
            )

        other = {r: await open_connection("127.0.0.1", broker.port) for r in (2, 3)}
        opened = [await session(replica, 0, 0, 0) for replica in (2, 3)]
        parked = asyncio.create_task(session(2, opened[0].session_id, 1, 1))
        while not broker.services.purgatories.fetch.parked:
            await asyncio.sleep(0)
        await session(3, opened[1].session_id, 1, 1)
        told = await parked
        assert [p.high_watermark for t in told.responses for p in t.partitions] == [1]
        for connection in other.values():
            connection.close()

    serve(tmp_path, scenario, racks=RACKS, replica_selector_class=RACK_AWARE_SELECTOR)


def test_our_consumer_reads_in_its_rack_and_from_the_leader_when_that_one_dies(
    tmp_path: Path,
) -> None:
    with served_in_racks(tmp_path) as (served, near):
        follower = served.cluster.brokers[near]
        with (
            Producer(bootstrap_servers=served.bootstrap, acks="all") as producer,
            Consumer(
                bootstrap_servers=served.bootstrap,
                client_rack=f"rack-{near}",
                auto_offset_reset="earliest",
            ) as consumer,
        ):
            consumer.assign([TopicPartition("t", 0)])
            for start in (0, 50):
                for number in range(start, start + 50):
                    producer.send("t", str(number).encode())
                producer.flush()
                values: list[int] = []
                while len(values) < 50:
                    polled = consumer.poll(20_000)
                    values += [int(r.value or b"") for rows in polled.values() for r in rows]
                assert values == list(range(start, start + 50))
                if start == 0:
                    assert follower.services.meters.topic("t").bytes_out > 0
                    served.stop(near)
