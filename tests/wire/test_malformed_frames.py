"""Malformed, oversized and unknown requests: the connection closes with one log line."""

from __future__ import annotations

import asyncio
import logging
import struct
from pathlib import Path

import pytest

from headwater.client.connection import open_connection
from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.wire.apis.k01_fetch import FetchPartition, FetchRequest, FetchTopic
from headwater.wire.apis.k03_metadata import MetadataRequest, MetadataResponse
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from headwater.wire.framing import encode_request
from headwater.wire.schema import decode
from headwater_broker.api.registry import load_handlers
from solo_broker import SoloBroker

HEADER = struct.Struct(">hhih")


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def produce_body(version: int = 7) -> bytes:
    data = TopicProduceData(
        name="t", partition_data=(PartitionProduceData(index=0, records=b"y" * 70),)
    )
    request = ProduceRequest(acks=1, timeout_ms=1000, topic_data=(data,))
    return encode_request(request, version, 5, "me")


def cut(body: bytes, size: int) -> bytes:
    return frame(body[:size])


SKIPPED = (4, 55, 57, 71, 88)
"""Keys of api/skipped.md, as Kafka's tools and clients send them."""
BAD = {
    "a size of zero": struct.pack(">i", 0) + b"x" * 20,
    "a negative size": struct.pack(">i", -5) + b"x" * 20,
    "larger than socket.request.max.bytes": struct.pack(">i", 1 << 20) + b"x" * 20,
    "a negative size, and no more": struct.pack(">i", -5),
    "too large a size, and little more": struct.pack(">i", 1 << 20) + b"x" * 9,
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "a TLS hello": bytes.fromhex("1603010200010001fc0303") + b"\0" * 60,
    "an unknown API key": frame(HEADER.pack(999, 0, 1, -1)),
    **{f"the unadvertised API key {key}": frame(HEADER.pack(key, 0, 1, -1)) for key in SKIPPED},
    "a negative API key": frame(HEADER.pack(-2, 0, 1, -1)),
    "a version above ours": frame(HEADER.pack(0, 99, 1, -1) + b"\0" * 30),
    "Produce 2, advertised but refused": frame(HEADER.pack(0, 2, 1, -1) + b"\0" * 30),
    "a version below ours": frame(HEADER.pack(1, 3, 1, -1) + b"\0" * 30),
    "a client id beyond the frame": frame(HEADER.pack(0, 7, 1, 500) + b"x" * 10),
    "a general request with a bad client id": frame(HEADER.pack(3, 1, 1, 500) + b"x" * 10),
    "a client id that is no UTF-8": frame(HEADER.pack(3, 1, 1, 2) + b"\xff\xfe" + b"\0" * 8),
    "Produce cut in the records": cut(produce_body(), len(produce_body()) - 3),
    "Produce cut in the topics": cut(produce_body(), 30),
    "flexible Produce cut": cut(produce_body(9), len(produce_body(9)) - 2),
    "Produce with a billion topics": frame(
        HEADER.pack(0, 7, 1, -1) + struct.pack(">hhii", -1, 1, 1, 1 << 30)
    ),
    "Fetch with a billion partitions": frame(
        HEADER.pack(1, 11, 1, -1)
        + struct.pack(">iiiibiii", -1, 1, 1, 1, 0, 0, 0, 1)
        + struct.pack(">h1si", 1, b"t", 1 << 30)
    ),
    "Metadata with a negative count of -7": frame(
        HEADER.pack(3, 1, 1, -1) + struct.pack(">i", 1 << 30)
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_only_that_connection_closes(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with SoloBroker(tmp_path, socket_request_max_bytes="65536") as broker:
            broker.create_topic("t")
            other = await open_connection("127.0.0.1", broker.port)
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(BAD[what])
            assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.close()
            reply = await other.call(MetadataRequest(topics=None), MetadataResponse)
            assert [t.name for t in reply.topics] == ["t"]
            other.close()

    with caplog.at_level(logging.WARNING, "headwater_broker.network"):
        asyncio.run(scenario())
    lines = [r for r in caplog.records if r.name.startswith("headwater_broker.network")]
    assert len(lines) == 1
    assert any(words in lines[0].getMessage() for words in ("closing connection", "speaks TLS"))
    assert not lines[0].exc_info


def test_what_go_clients_send_is_advertised_and_what_is_skipped_is_not() -> None:
    """Go clients sent CreateAcls and AlterUserScramCredentials, and got an unexpected EOF."""
    served = load_handlers()
    assert {30, 51} <= served.keys() and not served.keys() & set(SKIPPED)


def fetch_body() -> bytes:
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = (FetchTopic(topic="t", partitions=(row,)),)
    return encode_request(FetchRequest(topics=topics, max_bytes=1000), 11, 5, "me")


LONGER = {
    # librdkafka 2.16.0, list_topics(): four bytes for "all topics" where one is enough
    "Metadata of all topics": bytes.fromhex("0003000d00000005000772646b61666b610000000000010000"),
    "a plain general request": encode_request(ApiVersionsRequest(), 0, 5, None) + b"\0\0",
    "Produce": produce_body() + b"more",
    "flexible Produce": produce_body(9) + b"more",
    "Fetch": fetch_body() + b"more",
}


@pytest.mark.parametrize("what", LONGER)
def test_bytes_behind_the_last_field_are_ignored_as_by_kafka(what: str, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            for _ in range(2):
                writer.write(frame(LONGER[what]))
                size, correlation_id = struct.unpack(">ii", await reader.readexactly(8))
                assert correlation_id == 5 and await reader.readexactly(size - 4)
            writer.close()

    asyncio.run(scenario())


def test_replies_before_the_bad_frame_still_arrive(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with SoloBroker(tmp_path) as broker:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            good = encode_request(ApiVersionsRequest(), 0, 41, None)
            writer.write(frame(good) + BAD["an unknown API key"])
            data = await asyncio.wait_for(reader.read(), 10)
            assert struct.unpack_from(">i", data, 4) == (41,)
            writer.close()

    asyncio.run(scenario())


def test_an_unknown_version_of_api_versions_is_answered_in_version_zero(tmp_path: Path) -> None:
    async def scenario() -> bytes:
        async with SoloBroker(tmp_path) as broker:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            writer.write(frame(HEADER.pack(18, 99, 7, -1) + b"\0\1\2\3"))
            size = int.from_bytes(await reader.readexactly(4), "big")
            data = await reader.readexactly(size)
            writer.close()
            return data

    data = asyncio.run(scenario())
    assert data[:4] == b"\0\0\0\7"
    reply = decode(ApiVersionsResponse, 0, memoryview(data)[4:])
    assert reply.error_code == 35
    assert [(k.api_key, k.min_version, k.max_version) for k in reply.api_keys] == [(18, 0, 4)]
