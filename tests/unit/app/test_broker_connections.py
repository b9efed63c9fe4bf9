"""Connections to other brokers: one each, opened on demand, given up with the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis import k24_add_partitions_to_txn as k24
from headwater.wire.apis import k27_write_txn_markers as k27
from headwater.wire.control import BrokerEndpoint, LiveBroker
from headwater.wire.framing import request_header_version, response_header_version
from headwater.wire.headers import RequestHeader, ResponseHeader
from headwater.wire.schema import Message, decode, decoder, encode
from headwater_broker.app.broker_connections import BrokerConnections
from headwater_broker.app.transaction_channel import TransactionChannel
from headwater_broker.coordinator.transaction.transaction import Partition, ProducerIdentity
from headwater_broker.metadata.cache import MetadataCache
from headwater_broker.replica.marker_writer import TransactionMarker

TOPIC_ID = UUID(int=5)
ONE, OTHER = ("flights", 0), ("flights", 1)
PRODUCER = ProducerIdentity(7, 3)


class Peer:
    """A broker's end of a connection: answers AddPartitionsToTxn and WriteTxnMarkers."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self.is_closed = False
        self._gone = asyncio.Event()

    async def request(self, body: bytes) -> memoryview:
        self._net.requests += 1
        if self._net.gate is not None:
            waits = {
                asyncio.ensure_future(self._net.gate.wait()),
                asyncio.ensure_future(self._gone.wait()),
            }
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        if self.is_closed or self._net.resets > 0:
            self._net.resets -= 1
            raise ConnectionError("reset")
        return memoryview(self._net.answer(body))

    def close(self) -> None:
        self.is_closed = True
        self._gone.set()


class Net:
    """All brokers of the view, behind one `Connect`."""

    def __init__(self) -> None:
        self.view = MetadataCache("cluster", lambda: 1)
        self.live(1, 2)
        self.peers: list[Peer] = []
        self.requests = 0
        self.resets = 0
        """So many requests meet a reset."""
        self.gate: asyncio.Event | None = None
        self.connecting: asyncio.Event | None = None
        self.asked: list[Message] = []
        self.code = ErrorCode.NONE
        self.connections = BrokerConnections(self.view, self._connect, "PLAINTEXT", timeout_s=5)
        self.for_markers = BrokerConnections(self.view, self._connect, "PLAINTEXT", timeout_s=5)
        self.channel = TransactionChannel(1, self.connections, self.for_markers)

    def live(self, *broker_ids: int) -> None:
        self.view.brokers = {
            broker_id: LiveBroker(
                broker_id=broker_id, endpoints=(BrokerEndpoint(host="h", port=broker_id),)
            )
            for broker_id in broker_ids
        }

    async def _connect(self, host: str, port: int) -> Peer:
        if self.connecting is not None:
            await self.connecting.wait()
        self.peers.append(Peer(self))
        return self.peers[-1]

    def answer(self, body: bytes) -> bytes:
        cls: type[Message] = {24: k24.AddPartitionsToTxnRequest, 27: k27.WriteTxnMarkersRequest}[
            int.from_bytes(body[:2], "big")
        ]
        version = int.from_bytes(body[2:4], "big")
        header, at = decoder(RequestHeader, request_header_version(cls, version))(body)
        request = decode(cls, version, memoryview(body)[at:])
        self.asked.append(request)
        reply = self._reply(request)
        head = ResponseHeader(correlation_id=header.correlation_id)
        made = encode(head, response_header_version(type(reply), version))
        return bytes(made) + bytes(encode(reply, version))

    def _reply(self, request: Message) -> Message:
        if isinstance(request, k27.WriteTxnMarkersRequest):
            return k27.WriteTxnMarkersResponse(
                markers=tuple(
                    k27.WritableTxnMarkerResult(
                        producer_id=marker.producer_id,
                        topics=tuple(
                            k27.WritableTxnMarkerTopicResult(
                                name=topic.name,
                                partitions=tuple(
                                    k27.WritableTxnMarkerPartitionResult(
                                        partition_index=index, error_code=self.code
                                    )
                                    for index in topic.partition_indexes
                                ),
                            )
                            for topic in marker.topics
                        ),
                    )
                    for marker in request.markers
                )
            )
        assert isinstance(request, k24.AddPartitionsToTxnRequest)
        return k24.AddPartitionsToTxnResponse(
            error_code=self.code,
            results_by_transaction=tuple(
                k24.AddPartitionsToTxnResult(
                    transactional_id=row.transactional_id,
                    topic_results=tuple(
                        k24.AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=tuple(
                                k24.AddPartitionsToTxnPartitionResult(
                                    partition_index=index,
                                    partition_error_code=ErrorCode.TRANSACTION_ABORTABLE
                                    if row.verify_only and index
                                    else ErrorCode.NONE,
                                )
                                for index in topic.partitions
                            ),
                        )
                        for topic in row.topics
                    ),
                )
                for row in request.transactions
            ),
        )

    async def add(
        self, *partitions: Partition, name: str = "t", verify_only: bool = False
    ) -> dict[Partition, ErrorCode]:
        codes = await self.channel.add_partitions(
            2, name, PRODUCER, dict.fromkeys(partitions, TOPIC_ID), verify_only=verify_only
        )
        return dict(codes)


def play(story: Callable[[Net], Awaitable[None]]) -> None:
    async def run() -> None:
        net = Net()
        await story(net)
        await net.channel.close()
        assert all(peer.is_closed for peer in net.peers)

    asyncio.run(asyncio.wait_for(run(), 20))


async def code_of(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await work
    return caught.value.code


def test_no_verification_waits_behind_a_marker() -> None:
    """A marker waits for its followers, and a connection has its answers in order."""

    async def story(net: Net) -> None:
        marker = TransactionMarker(7, 3, True, 1, 2, {ONE: TOPIC_ID})
        await net.channel.write_markers(2, [marker])
        await net.add(ONE)
        of_markers, of_verifications = net.peers
        assert of_markers is not of_verifications
        await net.channel.write_markers(2, [marker])
        assert len(net.peers) == 2

    play(story)


def test_what_is_asked_in_one_turn_shares_a_request_and_a_connection() -> None:
    async def story(net: Net) -> None:
        answers = await asyncio.gather(
            net.add(ONE), net.add(OTHER), net.add(ONE, OTHER, name="u", verify_only=True)
        )
        assert answers == [
            {ONE: ErrorCode.NONE},
            {OTHER: ErrorCode.NONE},
            {ONE: ErrorCode.NONE, OTHER: ErrorCode.TRANSACTION_ABORTABLE},
        ]
        [request] = net.asked
        assert isinstance(request, k24.AddPartitionsToTxnRequest)
        merged, verified = request.transactions
        assert (merged.producer_id, merged.producer_epoch) == (7, 3)
        assert merged.topics[0].partitions == (0, 1), "of one producer: one row, one record"
        assert merged.topics[0].topic_id == TOPIC_ID
        assert verified.verify_only and not merged.verify_only
        await net.add(ONE)
        assert len(net.asked) == 2 and len(net.peers) == 1

    play(story)


def test_a_connection_that_was_idle_for_too_long_is_opened_again_at_once() -> None:
    async def story(net: Net) -> None:
        await net.add(ONE)
        net.resets = 1
        assert await net.add(ONE) == {ONE: ErrorCode.NONE}
        assert len(net.peers) == 2

    play(story)


def test_a_broker_that_resets_every_connection_is_a_network_exception() -> None:
    async def story(net: Net) -> None:
        net.resets = 9
        assert await code_of(net.add(ONE)) is ErrorCode.NETWORK_EXCEPTION
        assert net.requests == 1, "a new connection is not tried twice"
        net.resets = 0
        assert await net.add(ONE) == {ONE: ErrorCode.NONE}

    play(story)


def test_a_refusal_of_the_request_is_passed_on() -> None:
    async def story(net: Net) -> None:
        net.code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert await code_of(net.add(ONE)) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    play(story)


@pytest.mark.parametrize("is_open", [True, False])
def test_requests_to_a_broker_that_dies_fail_at_once(is_open: bool) -> None:
    async def story(net: Net) -> None:
        if is_open:
            await net.add(ONE)
            net.gate = asyncio.Event()
        else:
            net.connecting = asyncio.Event()
        waits = [asyncio.ensure_future(net.add(ONE)), asyncio.ensure_future(net.add(OTHER))]
        for _ in range(5):
            await asyncio.sleep(0)
        net.live(1)
        net.connections.live_brokers_changed()
        for wait in waits:
            assert await code_of(wait) is ErrorCode.NETWORK_EXCEPTION
        net.gate = net.connecting = None
        assert await code_of(net.add(ONE)) is ErrorCode.NETWORK_EXCEPTION, "it is not in the view"

    play(story)


def test_a_caller_that_gives_up_leaves_the_connection_to_the_others() -> None:
    async def story(net: Net) -> None:
        net.connecting = asyncio.Event()
        request = k27.WriteTxnMarkersRequest()
        calls = [
            asyncio.ensure_future(net.connections.call(2, request, 2, k27.WriteTxnMarkersResponse))
            for _ in range(2)
        ]
        for _ in range(3):
            await asyncio.sleep(0)
        calls[0].cancel()
        net.connecting.set()
        assert (await calls[1]).markers == ()
        assert len(net.peers) == 1

    play(story)


def test_markers_go_out_with_topic_ids_and_this_brokers_own_id() -> None:
    async def story(net: Net) -> None:
        marker = TransactionMarker(7, 4, True, 9, 2, {ONE: TOPIC_ID, OTHER: TOPIC_ID})
        [codes] = await net.channel.write_markers(2, [marker])
        assert codes == {ONE: ErrorCode.NONE, OTHER: ErrorCode.NONE}
        [request] = net.asked
        assert isinstance(request, k27.WriteTxnMarkersRequest)
        assert request.broker_id == 1
        [row] = request.markers
        assert (row.producer_id, row.producer_epoch, row.transaction_result) == (7, 4, True)
        assert (row.coordinator_epoch, row.transaction_version) == (9, 2)
        assert row.topics == (
            k27.WritableTxnMarkerTopic(name="flights", partition_indexes=(0, 1), topic_id=TOPIC_ID),
        )

    play(story)
