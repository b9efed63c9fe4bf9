"""Transactions as prepared frames over asyncio: the server is the bound, not a client.

Transaction version 2 (KIP-890): Produce and TxnOffsetCommit add their partitions themselves, and
EndTxn returns the epoch of the next transaction. A producer has one request in flight per broker.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Mapping
from itertools import count
from typing import TypeVar

from measures import Figure, Peer, create_topic, delete_topics, touch
from peers import cpu_seconds

from headwater.errors import ErrorCode
from headwater.records.builder import BatchBuilder, stamp_producer
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from headwater.wire.apis.k03_metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from headwater.wire.apis.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headwater.wire.apis.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from headwater.wire.apis.k26_end_txn import EndTxnRequest, EndTxnResponse
from headwater.wire.apis.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from headwater.wire.framing import decode_response, encode_request
from headwater.wire.schema import Message

RECORDS = 10
"""Records of one transaction, spread over its partitions."""
VALUE_BYTES = 100
TIMEOUT_MS = 600_000
RETRY_S = 0.001
"""Shorter than any client's back-off: what is measured is when the server is ready again."""
WAIT_S = 60.0
GROUP = 0
TRANSACTION = 1
VERSIONS: Mapping[type[Message], int] = {
    ProduceRequest: 12,
    MetadataRequest: 9,
    FindCoordinatorRequest: 4,
    InitProducerIdRequest: 5,
    EndTxnRequest: 5,
    TxnOffsetCommitRequest: 5,
}
RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
_IDENTITY = struct.Struct(">qh")
_LENGTH = struct.Struct(">i")
R = TypeVar("R", bound=Message)


class Channel(asyncio.Protocol):
    """A connection with one request in flight."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._received = bytearray()
        self._reply: asyncio.Future[bytes] | None = None

    @classmethod
    async def open(cls, host: str, port: int) -> Channel:
        """Connect to a broker."""
        loop = asyncio.get_running_loop()
        _, channel = await loop.create_connection(cls, host, port)
        return channel

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Complete the request once its reply is whole."""
        self._received += data
        if len(self._received) < 4:
            return
        end = 4 + _LENGTH.unpack_from(self._received)[0]
        if len(self._received) >= end and self._reply is not None:
            reply, self._reply = self._reply, None
            frame = bytes(self._received[4:end])
            del self._received[:end]
            reply.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request in flight."""
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(exc or ConnectionError("the broker closed the connection"))

    async def send(self, frame: bytes | bytearray) -> bytes:
        """Send a frame with its length; the reply without."""
        self._reply = asyncio.get_running_loop().create_future()
        self._transport.write(frame)
        return await self._reply

    async def call(self, request: Message, reply: type[R], version: int | None = None) -> R:
        """Encode, send, decode; `version`: where VERSIONS has none."""
        version = VERSIONS[type(request)] if version is None else version
        return decode_response(reply, version, await self.send(framed(request, version)), 1)

    def close(self) -> None:
        """Close the connection."""
        self._transport.close()


def framed(request: Message, version: int | None = None) -> bytearray:
    """A request with its length."""
    version = VERSIONS[type(request)] if version is None else version
    body = encode_request(request, version, 1, "bench")
    return bytearray(_LENGTH.pack(len(body)) + body)


async def coordinator_of(peer: Peer, key: str, key_type: int) -> Channel:
    """A connection to the coordinator of a group or of a transactional id."""
    channel = await Channel.open("127.0.0.1", peer.ports[0])
    try:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key,))
        end = time.monotonic() + WAIT_S
        while time.monotonic() < end:
            found = (await channel.call(request, FindCoordinatorResponse)).coordinators[0]
            if not found.error_code:
                return await Channel.open(found.host, found.port)
            await asyncio.sleep(0.05)
        raise RuntimeError(f"{peer.name}: {key} has no coordinator: error {found.error_code}")
    finally:
        channel.close()


async def _leaders_of(peer: Peer, topic: str) -> dict[int, tuple[str, int]]:
    """Address of each partition's leader."""
    channel = await Channel.open("127.0.0.1", peer.ports[0])
    request = MetadataRequest(topics=(MetadataRequestTopic(name=topic),))
    reply = await channel.call(request, MetadataResponse)
    channel.close()
    nodes = {broker.node_id: (broker.host, broker.port) for broker in reply.brokers}
    return {p.partition_index: nodes[p.leader_id] for p in reply.topics[0].partitions}


class RawProducer:
    """A transactional producer of prepared frames; `source`: also commits offsets of a group."""

    def __init__(self, name: str, source: str | None = None) -> None:
        self.name = name
        self.identity = (-1, -1)
        self._source = source
        self._coordinator: Channel
        self._group: Channel
        self._produce: list[_Batches] = []
        self._end = _Patched(
            EndTxnRequest(transactional_id=name, producer_id=-1, producer_epoch=-1, committed=True)
        )
        self._offsets = None if source is None else _Patched(_offsets(name, source))
        self.retries = 0

    async def open(self, peer: Peer, topic: str) -> None:
        """Connect to the coordinators and the leaders, and get a producer id."""
        self._coordinator = await coordinator_of(peer, self.name, TRANSACTION)
        if self._source is not None:
            self._group = await coordinator_of(peer, self.name, GROUP)
        leaders = await _leaders_of(peer, topic)
        for address in sorted(set(leaders.values())):
            mine = sorted(p for p, leader in leaders.items() if leader == address)
            channel = await Channel.open(*address)
            self._produce.append(_Batches(channel, self.name, topic, mine, len(leaders)))
        request = InitProducerIdRequest(
            transactional_id=self.name, transaction_timeout_ms=TIMEOUT_MS
        )
        end = time.monotonic() + WAIT_S
        while True:
            reply = await self._coordinator.call(request, InitProducerIdResponse)
            if reply.error_code not in RETRIABLE or time.monotonic() > end:
                break
            await asyncio.sleep(0.02)
        check(self.name, reply.error_code)
        self.identity = reply.producer_id, reply.producer_epoch

    async def transaction(self, offset: int) -> None:
        """Produce, commit the offset if there is a group, end the transaction."""
        if len(self._produce) == 1:
            await self._send(self._produce[0])
        else:
            await asyncio.gather(*(self._send(batches) for batches in self._produce))
        if self._offsets is not None:
            await self._commit(self._offsets, offset)
        self._end.stamp(self.identity)
        while True:
            frame = await self._coordinator.send(self._end.frame)
            reply = decode_response(EndTxnResponse, VERSIONS[EndTxnRequest], frame, 1)
            if await self._is_done(reply.error_code):
                break
        self.identity = reply.producer_id, reply.producer_epoch

    async def _send(self, batches: _Batches) -> None:
        batches.stamp(self.identity)
        while True:
            frame = await batches.channel.send(batches.frame)
            reply = decode_response(ProduceResponse, VERSIONS[ProduceRequest], frame, 1)
            codes = [p.error_code for t in reply.responses for p in t.partition_responses]
            # Partitions that took their batch know it again when it is repeated.
            if await self._is_done(next((code for code in codes if code), 0)):
                return

    async def _commit(self, offsets: _Patched, offset: int) -> None:
        offsets.stamp(self.identity, offset)
        while True:
            frame = await self._group.send(offsets.frame)
            version = VERSIONS[TxnOffsetCommitRequest]
            reply = decode_response(TxnOffsetCommitResponse, version, frame, 1)
            if await self._is_done(reply.topics[0].partitions[0].error_code):
                return

    async def _is_done(self, code: int) -> bool:
        if code not in RETRIABLE:
            check(self.name, code)
            return True
        self.retries += 1
        await asyncio.sleep(RETRY_S)
        return False

    def close(self) -> None:
        """Close the connections."""
        self._coordinator.close()
        if self._source is not None:
            self._group.close()
        for batches in self._produce:
            batches.channel.close()


class _Batches:
    """The Produce frame to one leader; producer id, epoch and CRC are set in place."""

    def __init__(
        self, channel: Channel, name: str, topic: str, partitions: list[int], of: int
    ) -> None:
        self.channel = channel
        builder = BatchBuilder()
        for _ in range(max(RECORDS // of, 1)):
            builder.append(time.time_ns() // 1_000_000, None, bytes(VALUE_BYTES), ())
        batch = builder.build(transactional=True)
        data = tuple(PartitionProduceData(index=p, records=bytes(batch)) for p in partitions)
        request = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=30_000,
            topic_data=(TopicProduceData(name=topic, partition_data=data),),
        )
        self.frame = framed(request)
        self._batch = bytearray(batch)
        self._at = []
        at = -1
        for _ in partitions:
            at = self.frame.index(batch, at + 1)
            self._at.append(at)

    def stamp(self, identity: tuple[int, int]) -> None:
        """The first batch of a transaction in each partition: sequences begin at 0."""
        stamp_producer(self._batch, *identity, 0)
        for at in self._at:
            self.frame[at : at + len(self._batch)] = self._batch


class _Patched:
    """The frame of a request with producer id and epoch -1, and perhaps an offset, to be set."""

    def __init__(self, request: Message) -> None:
        self.frame = framed(request)
        self._at = self.frame.index(_IDENTITY.pack(-1, -1))
        mark = struct.pack(">q", OFFSET_MARK)
        self._offset_at = self.frame.index(mark) if mark in self.frame else None

    def stamp(self, identity: tuple[int, int], offset: int = 0) -> None:
        """Set them."""
        _IDENTITY.pack_into(self.frame, self._at, *identity)
        if self._offset_at is not None:
            struct.pack_into(">q", self.frame, self._offset_at, offset)


OFFSET_MARK = 0x0123456789ABCDEF
"""An offset whose place in the frame can be found."""


def _offsets(name: str, source: str) -> TxnOffsetCommitRequest:
    row = TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=OFFSET_MARK, committed_metadata=""
    )
    return TxnOffsetCommitRequest(
        transactional_id=name,
        group_id=name,
        producer_id=-1,
        producer_epoch=-1,
        member_id="",
        topics=(TxnOffsetCommitRequestTopic(name=source, partitions=(row,)),),
    )


def check(name: str, code: int) -> None:
    """Raises RuntimeError for an error code."""
    if code:
        raise RuntimeError(f"{name}: {ErrorCode(code).name}")


def run_raw(
    peer: Peer, *, producers: int, partitions: int, seconds: float, offsets: bool = False,
    copies: int = 1,
) -> Figure:  # fmt: skip
    """Committed transactions per second of so many producers, each of RECORDS records."""
    topic = f"raw{time.monotonic_ns()}"
    create_topic(peer, topic, partitions, copies)
    touch(peer, topic, partitions)
    before = cpu_seconds(peer.pids)
    done, took = asyncio.run(_run(peer, topic, producers, seconds, offsets=offsets))
    used = cpu_seconds(peer.pids) - before
    delete_topics(peer, topic)
    return Figure(done / took, used / done * 1e6)


async def _run(
    peer: Peer, topic: str, producers: int, seconds: float, *, offsets: bool
) -> tuple[int, float]:
    made = [RawProducer(f"{topic}-{n}", topic if offsets else None) for n in range(producers)]
    for producer in made:
        await producer.open(peer, topic)
    start = time.monotonic()
    end = start + seconds

    async def work(producer: RawProducer) -> int:
        for done in count(1):
            await producer.transaction(done)
            if time.monotonic() >= end:
                break
        return done

    done = sum(await asyncio.gather(*(work(producer) for producer in made)))
    took = time.monotonic() - start
    for producer in made:
        producer.close()
    return done, took
