"""Produce with a transactional id over a real socket: rights, order, waits, errors per version."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater.client.connection import Connection
from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.wire.framing import encode_request
from headwater_broker.replica.marker_writer import TopicPartition, TransactionMarker
from headwater_broker.replica.transaction_verification import Producer
from solo_broker import SoloBroker
from unit.api.test_rights import Grants
from unit.log.harness import batch
from unit.network.test_data_plane import produce_request, serve
from unit.replica.test_transaction_verification import Coordinator

VERSIONS = (3, 8, 9, 11, 12, 13)
WRITES = (
    (Operation.WRITE, ResourceType.TOPIC, "t"),
    (Operation.WRITE, ResourceType.TOPIC, "u"),
)
NONE = ErrorCode.NONE
FOLLOWED = {"replicas": (1, 2), "isr": (1, 2)}


def data(sequence: int = 0, *, pid: int = 1, epoch: int = 0, transactional: bool = True) -> bytes:
    return bytes(
        batch(producer_id=pid, epoch=epoch, sequence=sequence, transactional=transactional)
    )


class Client:
    """A producer's connection."""

    def __init__(self, broker: SoloBroker, connection: Connection, version: int = 12) -> None:
        self.broker = broker
        self.connection = connection
        self.version = version
        self.coordinator = Coordinator()
        broker.services.verifier.enlistment = self.coordinator

    def send(
        self, records: bytes, *more: tuple[str, bytes], acks: int = -1, **fields: Any
    ) -> asyncio.Task[list[tuple[ErrorCode, int]]]:
        """Codes and base offsets of the partitions: "t" first, then `more`."""
        topics = []
        for topic, content in (("t", records), *more):
            named = {"name": topic}
            if self.version >= 13:
                named = {"topic_id": self.broker.view.topics[topic].topic_id}  # type: ignore[dict-item]
            entry = PartitionProduceData(index=0, records=content)
            topics.append(TopicProduceData(partition_data=(entry,), **named))  # type: ignore[arg-type]
        request = ProduceRequest(
            acks=acks,
            timeout_ms=20_000,
            topic_data=tuple(topics),
            **{"transactional_id": "tx", **fields},
        )
        return asyncio.ensure_future(self._call(request))

    async def _call(self, request: ProduceRequest) -> list[tuple[ErrorCode, int]]:
        reply = await self.connection.call(request, ProduceResponse, version=self.version)
        rows = [row for topic in reply.responses for row in topic.partition_responses]
        return [(ErrorCode(row.error_code), row.base_offset) for row in rows]

    async def asked(self, count: int) -> None:
        while len(self.coordinator.asked) < count:
            await asyncio.sleep(0)

    def log_end(self, topic: str = "t") -> int:
        return self.broker.replicas.lookup(topic, 0).log.log_end_offset


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [-1, 1])
def test_the_first_batch_waits_for_its_coordinator(tmp_path: Path, version: int, acks: int) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        client = Client(broker, c, version)
        first, second = client.send(data(0), acks=acks), client.send(data(1), acks=acks)
        await client.asked(1)
        assert client.log_end() == 0
        assert client.coordinator.asked[0][-1] == (version < 12), "verified or added"
        await client.coordinator.answer()
        assert await first == [(NONE, 0)] and await second == [(NONE, 1)]
        assert await client.send(data(2), acks=acks) == [(NONE, 2)]
        assert await client.send(data(2), acks=acks) == [(NONE, 2)], "a duplicate"
        assert len(client.coordinator.asked) == 1
        meter = broker.services.meters.topic("t")
        assert (meter.records_in, client.log_end()) == (4, 3)
        partition = broker.replicas.lookup("t", 0)
        assert (partition.high_watermark, partition.last_stable_offset) == (3, 0)

    serve(tmp_path, scenario)


def test_verified_batches_wait_for_their_replicas(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t", **FOLLOWED)
        client = Client(broker, c)
        first = client.send(data(0))
        await client.asked(1)
        await client.coordinator.answer()
        partition = broker.replicas.lookup("t", 0)
        assert (partition.log.log_end_offset, first.done()) == (1, False)
        partition.update_follower(2, 7, 1, broker.services.clock.monotonic())
        assert await first == [(NONE, 0)]

    serve(tmp_path, scenario)


def test_partitions_of_a_request_are_asked_together_and_answered_together(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        broker.create_topic("u")
        client = Client(broker, c)
        both = client.send(data(0), ("u", data(0)), ("none", data(0)))
        await client.asked(1)
        assert client.coordinator.asked[0][3] == {("t", 0), ("u", 0)}
        await client.coordinator.answer()
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert await both == [(NONE, 0), (NONE, 0), unknown]

    serve(tmp_path, scenario)


@pytest.mark.parametrize(
    ("version", "code"),
    [(9, ErrorCode.NOT_ENOUGH_REPLICAS), (12, ErrorCode.CONCURRENT_TRANSACTIONS)],
)
def test_a_refused_batch_can_be_sent_again(tmp_path: Path, version: int, code: ErrorCode) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        client = Client(broker, c, version)
        first, second = client.send(data(0)), client.send(data(1))
        await client.asked(1)
        await asyncio.sleep(0.01)
        await client.coordinator.answer(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert await first == await second == [(code, -1)]
        # The one behind was on its way already: it must not be called out of order.
        assert await client.send(data(2)) == [(code, -1)]
        again = [client.send(data(sequence)) for sequence in range(3)]
        await client.asked(2)
        await client.coordinator.answer()
        assert [await reply for reply in again] == [[(NONE, 0)], [(NONE, 1)], [(NONE, 2)]]

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", [8, 13])
def test_the_right_on_the_transactional_id_comes_first(tmp_path: Path, version: int) -> None:
    """One right for the whole request, as in Kafka, and only where a batch is transactional."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        broker.create_topic("u")
        client = Client(broker, c, version)
        denied = (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)
        assert await client.send(data()) == [denied]
        plain = data(transactional=False, pid=9)
        assert await client.send(plain, ("u", data())) == [denied, denied]
        assert await client.send(plain) == [(NONE, 0)]
        assert client.coordinator.asked == []
        begun = client.send(data(), transactional_id="mine")
        await client.asked(1)
        await client.coordinator.answer()
        assert await begun == [(NONE, 1)]
        assert await client.send(data(1), transactional_id="mine") == [(NONE, 2)]
        assert await client.send(data(2)) == [denied], "though it is open here"

    mine = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "mine")
    serve(tmp_path, scenario, Grants(mine, *WRITES))


@pytest.mark.parametrize("version", [8, 12])
def test_a_transactional_batch_needs_a_transactional_id(tmp_path: Path, version: int) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        client = Client(broker, c, version)
        found = await client.send(data(), transactional_id=None)
        assert found == [(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)]
        assert client.log_end() == 0

    serve(tmp_path, scenario)


def test_a_request_has_batches_of_one_producer(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        broker.create_topic("u")
        client = Client(broker, c)
        wrong = (ErrorCode.INVALID_PRODUCER_ID_MAPPING, -1)
        assert await client.send(data(), ("u", data(pid=2))) == [wrong, wrong]

    serve(tmp_path, scenario)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (data(pid=-1), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (data(epoch=-1), ErrorCode.INVALID_RECORD),
        (data(-1), ErrorCode.INVALID_RECORD),
        (data() + data(1), ErrorCode.INVALID_RECORD),
        (data()[:40], ErrorCode.CORRUPT_MESSAGE),
        (data()[:-1] + b"x", ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_bad_batches_are_refused(tmp_path: Path, records: bytes, code: ErrorCode) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        client = Client(broker, c)
        reply = client.send(records)
        while not reply.done() and not client.coordinator.asked:
            await asyncio.sleep(0)
        if client.coordinator.asked:
            await client.coordinator.answer()
        assert (await reply)[0][1] == -1 and client.log_end() == 0
        if code is not ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            assert (await reply)[0][0] is code

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", [8, 12])
def test_a_late_batch_is_fenced_on_both_ways(tmp_path: Path, version: int) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        client = Client(broker, c, version)
        begun = client.send(data())
        await client.asked(1)
        await client.coordinator.answer()
        await begun
        marker = TransactionMarker(1, 1, False, 0, 2, {("t", 0): UUID(int=0)})
        await broker.services.markers.write([marker])
        assert await client.send(data(1)) == [(ErrorCode.INVALID_PRODUCER_EPOCH, -1)]
        assert len(client.coordinator.asked) == 1

    serve(tmp_path, scenario)


def test_a_client_that_went_away_is_not_answered(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        client = Client(broker, c)
        reply = client.send(data())
        await client.asked(1)
        c.close()
        with pytest.raises(ConnectionError):
            await reply
        await asyncio.sleep(0.01)
        await client.coordinator.answer()
        assert client.log_end() == 1, "what was verified is appended"

    serve(tmp_path, scenario)


@pytest.mark.parametrize("code", [NONE, ErrorCode.TRANSACTION_ABORTABLE])
def test_acks_0_closes_the_connection_when_it_fails(tmp_path: Path, code: ErrorCode) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        client = Client(broker, c)
        reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
        for correlation_id, acks in ((1, 0), (2, 1)):
            request = produce_request("t", data(correlation_id - 1), acks)
            request = replace(request, transactional_id="tx")
            body = encode_request(request, 12, correlation_id, None)
            writer.write(len(body).to_bytes(4, "big") + body)
        await client.asked(1)
        await asyncio.sleep(0.01)
        await client.coordinator.answer(code)
        if code is NONE:
            size = int.from_bytes(await reader.readexactly(4), "big")
            assert (await reader.readexactly(size))[:4] == b"\0\0\0\2", "the second one's"
            assert client.log_end() == 2
        else:
            await reader.read()
            assert reader.at_eof() and client.log_end() == 0
        writer.close()

    serve(tmp_path, scenario)


class AnswersAtOnce:
    """A coordinator on this broker: it has answered when it was asked. Implements `Enlistment`."""

    def __init__(self, **refused: ErrorCode) -> None:
        self.refused = refused
        self.asked: list[set[TopicPartition]] = []

    async def enlist(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Mapping[TopicPartition, UUID],
        *,
        verify_only: bool,
        coordinator_epoch: int = -1,
    ) -> Mapping[TopicPartition, ErrorCode]:
        self.asked.append(set(partitions))
        return {key: self.refused.get(key[0], NONE) for key in partitions}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_coordinator_on_this_broker_is_asked_once_within_the_request(
    tmp_path: Path, version: int
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        broker.create_topic("u")
        client = Client(broker, c, version)
        here = broker.services.verifier.enlistment = AnswersAtOnce()
        assert await client.send(data(0), ("u", data(0))) == [(NONE, 0), (NONE, 0)]
        assert here.asked == [{("t", 0), ("u", 0)}]
        assert await client.send(data(1), ("u", data(1))) == [(NONE, 1), (NONE, 1)]
        assert len(here.asked) == 1
        first, second = client.send(data(0, pid=2)), client.send(data(1, pid=2))
        assert await first == [(NONE, 2)] and await second == [(NONE, 3)]
        assert here.asked[1:] == [{("t", 0)}]

    serve(tmp_path, scenario)


def test_what_a_coordinator_on_this_broker_refuses_is_not_appended(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        broker.create_topic("u")
        client = Client(broker, c)
        refusal = ErrorCode.TRANSACTION_ABORTABLE
        broker.services.verifier.enlistment = AnswersAtOnce(u=refusal)
        answers = await client.send(data(0), ("u", data(0)))
        assert answers == [(NONE, 0), (refusal, -1)]
        assert (client.log_end("t"), client.log_end("u")) == (1, 0)

    serve(tmp_path, scenario)


@pytest.mark.parametrize("version", [12, 13])
def test_where_the_coordinator_is_here_each_topic_needs_its_right(
    tmp_path: Path, version: int
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        broker.create_topic("u")
        client = Client(broker, c, version)
        here = broker.services.verifier.enlistment = AnswersAtOnce()
        denied = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)
        assert await client.send(data(0), ("u", data(0))) == [(NONE, 0), denied]
        assert (client.log_end("t"), client.log_end("u")) == (1, 0)
        assert here.asked == [{("t", 0)}]

    tx = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "tx")
    serve(tmp_path, scenario, Grants(tx, WRITES[0]))


def test_where_the_coordinator_is_here_no_client_writes_to_an_internal_topic(
    tmp_path: Path,
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        broker.create_topic("__consumer_offsets")
        client = Client(broker, c)
        broker.services.verifier.enlistment = AnswersAtOnce()
        answers = await client.send(data(0), ("__consumer_offsets", data(0)))
        assert answers == [(NONE, 0), (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)]
        assert client.log_end("__consumer_offsets") == 0

    serve(tmp_path, scenario)
