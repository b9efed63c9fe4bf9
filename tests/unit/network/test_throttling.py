"""Clients over a quota, over real sockets: throttle_time_ms, and a muted connection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.wire.apis.k00_produce import ProduceResponse
from headwater.wire.apis.k01_fetch import FetchResponse, ReplicaState
from headwater.wire.apis.k03_metadata import MetadataRequest, MetadataResponse
from headwater.wire.apis.k19_create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.wire.apis.k23_offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from headwater.wire.framing import encode_request
from headwater_broker.log.results import AppendResult
from headwater_broker.quota.rate import Windows
from headwater_broker.replica.partition import Partition
from solo_broker import BROKER_EPOCH, SoloBroker
from unit.network.test_data_plane import batch, fetch, fetch_request, produce_request, serve

TWO = {"quota_window_num": "2"}
"""Two windows of a second: a rate is at least what a second sees."""
QUICK = Windows(2, 0.1)
PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
EVERYBODY = "clients_<default>"


class Timed:
    """How long something took, in seconds."""

    def __enter__(self) -> Timed:
        self._began = asyncio.get_running_loop().time()
        return self

    def __exit__(self, *_: object) -> None:
        self.s = asyncio.get_running_loop().time() - self._began


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_a_producer_is_told_and_muted(tmp_path: Path, version: int, acks: int) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t")
        broker.limit_clients(**{EVERYBODY: {PRODUCE: "10000"}})
        key: Any = {"topic_id": topic_id} if version >= 13 else {}
        request = produce_request("" if key else "t", batch(1, 11_000), acks, **key)
        with Timed() as both:  # when the mute began within the first is not known
            with Timed() as first:
                reply = await c.call(request, ProduceResponse, version=version)
            await c.call(MetadataRequest(topics=()), MetadataResponse)
        row = reply.responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, 0)
        assert 100 <= reply.throttle_time_ms <= 150 and first.s < 0.1
        assert 0.099 <= both.s < 1
        assert broker.services.quotas.throttled == {PRODUCE: 1}

    serve(tmp_path, scenario, **TWO)


def test_a_reply_that_waits_for_replicas_tells_it_too(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2))
        broker.limit_clients(**{EVERYBODY: {PRODUCE: "10000"}})
        request = produce_request("t", batch(1, 11_000), -1, timeout_ms=200)
        reply = await c.call(request, ProduceResponse, version=9)
        assert reply.responses[0].partition_responses[0].error_code == 7  # nobody replicates
        assert reply.throttle_time_ms >= 100

    serve(tmp_path, scenario, **TWO)


def test_what_is_in_the_buffer_waits_too_and_acks_0_mutes_without_a_reply(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[float] = []
    append = Partition.append

    def note(partition: Partition, *args: Any) -> AppendResult:
        times.append(asyncio.get_running_loop().time())
        return append(partition, *args)

    monkeypatch.setattr(Partition, "append", note)

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        broker.limit_clients(**{EVERYBODY: {PRODUCE: "10000"}})
        frames = [
            encode_request(produce_request("t", batch(1, 11_000), 0), 9, n, "app") for n in (1, 2)
        ]
        data = b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)
        _, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        writer.write(data)
        while len(times) < 2:
            await asyncio.sleep(0.01)
        assert 0.099 <= times[1] - times[0] < 0.25
        assert broker.replicas.partitions["t", 0].log.log_end_offset == 2
        writer.close()

    serve(tmp_path, scenario, **TWO)


def test_other_clients_are_not_held_up(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        broker.limit_clients(clients_greedy={PRODUCE: "1"})
        greedy = await open_connection("127.0.0.1", broker.port, client_id="greedy")
        request = produce_request("t", batch(1, 1000))
        reply = await greedy.call(request, ProduceResponse, version=9)
        assert reply.throttle_time_ms > 100_000
        with Timed() as other:
            reply = await c.call(request, ProduceResponse, version=9)
        assert reply.throttle_time_ms == 0 and other.s < 0.5
        greedy.close()

    serve(tmp_path, scenario, **TWO)


@pytest.mark.parametrize("version", [4, 11, 12, 18])
def test_a_consumer_gets_nothing_until_it_may(tmp_path: Path, version: int) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t")
        for _ in range(2):
            await c.call(produce_request("t", batch(1, 9000)), ProduceResponse, version=9)
        broker.services.quotas.windows = QUICK
        broker.limit_clients(**{EVERYBODY: {CONSUME: "100000"}})
        key: Any = {"topic_id": topic_id} if version >= 13 else {}

        async def ask(offset: int) -> FetchResponse:
            request = fetch_request("" if key else "t", offset, max_bytes=9500, **key)
            return await c.call(request, FetchResponse, version=version)

        first = await ask(0)
        assert first.throttle_time_ms == 0 and first.responses[0].partitions[0].records
        over = await ask(1)
        assert over.responses == () and over.error_code == 0 and over.session_id == 0
        assert 80 <= over.throttle_time_ms <= 90
        with Timed() as waited:
            await c.call(MetadataRequest(topics=()), MetadataResponse)
        assert 0.07 <= waited.s < 1

    serve(tmp_path, scenario, **TWO)


def test_a_session_goes_on_where_it_was(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        await c.call(produce_request("t", batch(1, 9000)), ProduceResponse, version=9)
        opened = await c.call(fetch_request("t", 0, session_epoch=0), FetchResponse, version=11)
        assert opened.session_id > 0
        broker.limit_clients(**{EVERYBODY: {CONSUME: "40000"}})
        limit = broker.services.quotas.of("ANONYMOUS", "").fetch
        assert limit is not None
        limit.record(42_000)
        session: Any = {"session_id": opened.session_id}
        over = await c.call(
            fetch_request("t", 0, session_epoch=1, **session), FetchResponse, version=11
        )
        assert over.responses == () and over.session_id == opened.session_id
        assert over.throttle_time_ms > 0
        limit.record(-42_000)
        more = await c.call(
            fetch_request("t", 0, session_epoch=2, **session), FetchResponse, version=11
        )
        assert more.responses[0].partitions[0].records and more.throttle_time_ms == 0

    serve(tmp_path, scenario, **TWO)


def test_no_more_is_asked_for_than_the_windows_allow(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        for _ in range(4):
            await c.call(produce_request("t", batch(1, 4000)), ProduceResponse, version=9)
        broker.limit_clients(**{EVERYBODY: {CONSUME: "9000"}})
        row = await fetch(c, "t", 0)
        assert 8000 <= len(row.records or b"") <= 9000

    serve(tmp_path, scenario, **TWO)


def test_followers_are_exempt(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", replicas=(1, 2))
        broker.racks[2] = ""
        await c.call(produce_request("t", batch(1, 9000)), ProduceResponse, version=9)
        broker.limit_clients(
            **{EVERYBODY: {CONSUME: "1", PRODUCE: "1", "request_percentage": "0.000001"}}
        )
        asked = OffsetForLeaderEpochRequest(replica_id=2, topics=())
        reply = await c.call(asked, OffsetForLeaderEpochResponse)
        assert reply.throttle_time_ms == 0
        state = ReplicaState(replica_id=2, replica_epoch=BROKER_EPOCH)
        follower = await open_connection("127.0.0.1", broker.port, negotiate=False)
        for offset in (0, 0):
            topic_id = broker.view.topics["t"].topic_id
            request = fetch_request("", offset, replica_state=state, topic_id=topic_id)
            told = await follower.call(request, FetchResponse, version=17)
            assert told.responses[0].partitions[0].records and told.throttle_time_ms == 0
        follower.close()

    serve(tmp_path, scenario, **TWO)


def test_time_on_the_loop_is_charged_to_requests_of_every_kind(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.services.quotas.windows = QUICK
        broker.limit_clients(users_ANONYMOUS={"request_percentage": "0.000001"})
        reply = await c.call(MetadataRequest(topics=()), MetadataResponse)
        assert reply.throttle_time_ms == 100  # no longer than a window
        made = CreateTopicsRequest(topics=(CreatableTopic(name="t", num_partitions=1),))
        with Timed() as waited:
            created = await c.call(made, CreateTopicsResponse)
        assert created.throttle_time_ms == 100 and waited.s >= 0.08
        broker.services.quotas.update({})
        assert broker.view.topics["t"]
        request = produce_request("t", batch(), 1)
        broker.limit_clients(users_ANONYMOUS={"request_percentage": "0.000001"})
        told = await c.call(request, ProduceResponse, version=9)
        assert told.throttle_time_ms == 100
        found = await c.call(fetch_request("t", 0), FetchResponse, version=11)
        assert found.throttle_time_ms == 100 and found.responses[0].partitions[0].records

    serve(tmp_path, scenario)
