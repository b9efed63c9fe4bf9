"""Fetches over a blocking connection: requests, responses, and a stream that fetches ahead.

`headwater.client.blocking.record_client` uses it; `FetchedBatches` is what both return.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from headwater.client.blocking.connection import BlockingConnection
from headwater.client.errors import kafka_error
from headwater.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES
from headwater.wire.apis.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headwater.wire.framing import decode_response

NAMES_FETCH_VERSION = 12
"""The last Fetch version with topic names; later ones have topic ids."""
IDS_FETCH_VERSION = 13
"""The first with topic ids (KIP-516)."""
NO_TOPIC_ID = UUID(int=0)
FIRST_BUFFER_BYTES = 64 << 10
"""A stream of few records, of which there may be thousands, clears no memory for many."""
_BATCH_START = struct.Struct(">qi")
_LEADER_EPOCH_AT = 12
_OFFSET_DELTA_AT = 23
_INT32 = struct.Struct(">i")


class FetchedBatches(NamedTuple):
    """Whole batches as stored. The first may begin before the requested offset.

    `aborted` is [(producer_id, first_offset)] under READ_COMMITTED. `next_offset` is where to
    continue: after the last whole batch, or the requested offset if there is none.
    """

    records: memoryview
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[tuple[int, int]]
    next_offset: int


def next_offset_after(records: memoryview, offset: int) -> tuple[int, int, int]:
    """(the offset after the last whole batch in `records`, its end byte, its leader epoch);
    (`offset`, 0, -1) if there is none."""
    at, end, unpack = 0, len(records), _BATCH_START.unpack_from
    last = -1
    while end - at >= HEADER_BYTES:
        _, length = unpack(records, at)
        after = at + length + LOG_OVERHEAD_BYTES
        if length < HEADER_BYTES - LOG_OVERHEAD_BYTES or after > end:
            break
        last, at = at, after
    if last < 0:
        return offset, 0, -1
    base = unpack(records, last)[0]
    delta = _INT32.unpack_from(records, last + _OFFSET_DELTA_AT)[0]
    leader_epoch = _INT32.unpack_from(records, last + _LEADER_EPOCH_AT)[0]
    return max(offset, base + delta + 1), at, leader_epoch


class FetchStream:
    """Fetches of one partition over one connection, each requested before the last is returned."""

    def __init__(
        self,
        connection: BlockingConnection,
        topic: str,
        partition: int,
        max_bytes: int,
        isolation: int,
        max_wait_ms: int,
        topic_id: UUID = NO_TOPIC_ID,
    ) -> None:
        """With a `topic_id`, a broker that serves Fetch by topic ids never answers with records of
        a topic that was created again under the name."""
        self._connection = connection
        self._topic_id = topic_id
        self._topic = topic
        self._partition = partition
        self._max_bytes = max_bytes
        self._isolation = isolation
        self._max_wait_ms = max_wait_ms
        by_id = topic_id != NO_TOPIC_ID
        cap = IDS_FETCH_VERSION if by_id else NAMES_FETCH_VERSION
        self._version = connection.version_for(FetchRequest, cap)
        self.is_pending = False
        """True while a response is outstanding: no other call may use the connection."""

    def _request(self, offset: int) -> int:
        request = fetch_request(
            self._topic,
            self._partition,
            offset,
            self._max_bytes,
            self._isolation,
            self._max_wait_ms,
            self._topic_id,
        )
        self.is_pending = True
        return self._connection.send(request, self._version)

    def fetches(self, offset: int, end: int) -> Iterator[FetchedBatches]:
        """Fetches until `end`; also empty ones, when there is nothing new yet."""
        buffers = [bytearray(FIRST_BUFFER_BYTES), bytearray()]
        turn = 0
        correlation_id = self._request(offset)
        while True:
            if len(buffers[turn]) < len(buffers[1 - turn]):  # it goes on: there is more to come
                buffers[turn] = bytearray(self._max_bytes + 4096)
            reply = self._connection.receive(buffers[turn])
            self.is_pending = False
            if isinstance(reply.obj, bytearray):
                buffers[turn] = reply.obj
            response = decode_response(FetchResponse, self._version, reply, correlation_id)
            if is_throttled(self._connection, response):
                correlation_id = self._request(offset)
                continue
            fetched = parse_fetch(response, self._topic, self._partition, offset)
            offset = fetched.next_offset
            if offset < end:
                correlation_id = self._request(offset)
            yield fetched
            if offset >= end:
                return
            turn = 1 - turn


def fetch_request(
    topic: str,
    partition: int,
    offset: int,
    max_bytes: int,
    isolation: int,
    max_wait_ms: int,
    topic_id: UUID = NO_TOPIC_ID,
) -> FetchRequest:
    """A Fetch request for one partition, with the topic's name and id; its version takes one."""
    row = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=isolation,
        topics=(FetchTopic(topic=topic, topic_id=topic_id, partitions=(row,)),),
    )


def is_throttled(connection: BlockingConnection, response: FetchResponse) -> bool:
    """True for a response without topics, of a broker that throttles the client: fetch again."""
    connection.throttle(response)
    return not response.responses and response.throttle_time_ms > 0


def parse_fetch(response: FetchResponse, topic: str, partition: int, offset: int) -> FetchedBatches:
    """The batches in a response. Raises KafkaError for an error code."""
    if response.error_code:
        raise kafka_error(response.error_code, f"fetch from {topic}-{partition}")
    answer: PartitionData = response.responses[0].partitions[0]
    if answer.error_code:
        detail = (
            f"fetch from {topic}-{partition} at offset {offset} "
            f"(log starts at {answer.log_start_offset}, high watermark {answer.high_watermark})"
        )
        raise kafka_error(answer.error_code, detail)
    records = memoryview(answer.records or b"")
    next_offset, end, _ = next_offset_after(records, offset)
    aborted = [(a.producer_id, a.first_offset) for a in answer.aborted_transactions or ()]
    return FetchedBatches(
        records[:end],
        answer.high_watermark,
        answer.last_stable_offset,
        answer.log_start_offset,
        aborted,
        next_offset,
    )
