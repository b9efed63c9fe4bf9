"""The Produce fast path against the general codec, in every version."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.wire.apis.k00_produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from headwater.wire.schema import decode, encode
from headwater_broker.api.produce.request_codec import (
    SingleFrame,
    parse_flexible,
    parse_plain,
    parse_single,
    parse_single_flexible,
)
from headwater_broker.api.produce.response_codec import Row, encode_rows, encode_single

VERSIONS = range(3, 14)
ID = UUID("01234567-89ab-cdef-0123-456789abcdef")

records = st.one_of(st.none(), st.binary(max_size=40))
partitions = st.lists(
    st.builds(
        lambda index, data: PartitionProduceData(index=index, records=data),
        st.integers(0, 2**31 - 1),
        records,
    ),
    max_size=3,
)
topics = st.lists(
    st.builds(
        lambda name, parts: TopicProduceData(name=name, topic_id=ID, partition_data=tuple(parts)),
        st.text("abc.-é", min_size=1, max_size=130),
        partitions,
    ),
    max_size=3,
)


def parse(body: bytes, version: int):  # type: ignore[no-untyped-def]
    view = memoryview(b"head" + body)
    return (parse_flexible if version >= 9 else parse_plain)(view, 4, len(view), version), view


@given(
    st.sampled_from(VERSIONS),
    st.one_of(st.none(), st.text(max_size=5)),
    st.integers(-2, 2),
    topics,
)
def test_parsers_agree_with_the_codec(
    version: int, transactional_id: str | None, acks: int, asked: list[TopicProduceData]
) -> None:
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=77, topic_data=tuple(asked)
    )
    (found_id, found_acks, timeout_ms, found), view = parse(encode(request, version), version)
    assert (found_id, found_acks, timeout_ms) == (transactional_id, acks, 77)
    assert len(found) == len(asked)
    for (_, key, entries), topic in zip(found, asked, strict=True):
        assert key == (ID.bytes if version >= 13 else topic.name)
        assert [index for index, _, _ in entries] == [p.index for p in topic.partition_data]
        for (_, start, stop), data in zip(entries, topic.partition_data, strict=True):
            assert (None if start < 0 else bytes(view[start:stop])) == data.records


def parse_short(view: memoryview, at: int, end: int, version: int) -> SingleFrame | None:
    if version < 9:
        return parse_single(view, at, end)
    return parse_single_flexible(view, at, end, version)


@given(
    st.sampled_from((7, 8, 9, 12, 13)),
    st.one_of(st.none(), st.text(max_size=3), st.text("x", min_size=120, max_size=130)),
    st.integers(-2, 2),
    topics,
)
def test_the_short_parsers_agree_or_pass(
    version: int, transactional_id: str | None, acks: int, asked: list[TopicProduceData]
) -> None:
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=77, topic_data=tuple(asked)
    )
    body = encode(request, version)
    view = memoryview(b"head" + body + b"tail")
    end = 4 + len(body)
    single = parse_short(view, 4, end, version)
    (_, _, _, found), _ = parse(body, version)
    is_single = len(found) == 1 and len(found[0][2]) == 1
    names = [topic.name for topic in asked] if version < 13 else []
    is_short = version < 9 or all(
        len(text.encode()) <= 126 for text in (*names, transactional_id or "")
    )
    if is_single and is_short and found[0][2][0][1] >= 0:
        field, key, ((index, start, stop),) = found[0]
        assert single == (transactional_id, field, key, index, start, stop, acks, 77)
        assert all(
            parse_short(view, 4, other, version) is None for other in (*range(4, end), end + 1)
        )
    else:
        assert single is None


SIZES = (0, 1, 125, 126, 127, 16_381, 16_382, 16_383, 16_384, 2**21 - 2, 2**21 - 1, 2**21)
"""Around those at which one more byte tells the size."""


@pytest.mark.parametrize("version", [8, 9, 13])
@pytest.mark.parametrize("size", SIZES)
def test_the_short_parsers_read_every_size(version: int, size: int) -> None:
    data = PartitionProduceData(index=3, records=bytes(size))
    topic = TopicProduceData(name="sizes", topic_id=ID, partition_data=(data,))
    body = encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=(topic,)), version)
    single = parse_short(memoryview(body), 0, len(body), version)
    stop = len(body) - (3 if version >= 9 else 0)  # tagged fields
    assert single is not None and single[4:6] == (stop - size, stop)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_frame_is_refused(version: int) -> None:
    topic = TopicProduceData(
        name="t",
        topic_id=ID,
        partition_data=(PartitionProduceData(index=1, records=b"x" * 30),),
    )
    body = encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=(topic,)), version)
    for size in range(len(body)):
        with pytest.raises((ValueError, IndexError, struct.error)):
            parse(body[:size], version)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_single_reply_is_what_the_codec_reads(version: int) -> None:
    name = b"topic"
    if version >= 13:
        field = ID.bytes
    else:
        field = bytes([len(name) + 1]) + name if version >= 9 else b"\0\5" + name
    data = encode_single(version, 99, field, 3, 1000, -1, 7)
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert int.from_bytes(data[4:8], "big") == 99
    body = memoryview(data)[9 if version >= 9 else 8 :]
    reply = decode(ProduceResponse, version, body)
    [topic] = reply.responses
    [row] = topic.partition_responses
    assert (topic.topic_id == ID) if version >= 13 else (topic.name == "topic")
    assert (row.index, row.error_code, row.base_offset) == (3, 0, 1000)
    assert row.log_append_time_ms == -1
    assert row.log_start_offset == (7 if version >= 5 else -1)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("counts", [(1,), (3,), (1, 2), (130,), tuple([1] * 130)])
def test_a_response_of_many_rows_is_the_codecs(version: int, counts: tuple[int, ...]) -> None:
    rows, responses = [], []
    for topic, count in enumerate(counts):
        by_id = version >= 13
        name, topic_id = f"topic-{topic}", UUID(int=topic + 1)
        key = topic_id.bytes if by_id else name
        size = bytes([len(name) + 1]) if version >= 9 else struct.pack(">h", len(name))
        field = topic_id.bytes if by_id else size + name.encode()
        parts = []
        for index in range(count):
            row = Row(field, key, name, index)
            row.base_offset, row.append_time_ms, row.log_start_offset = 1000 + index, -1, 7
            rows.append(row)
            parts.append(
                PartitionProduceResponse(
                    index=index, error_code=0, base_offset=1000 + index, log_start_offset=7
                )
            )
        responses.append(
            TopicProduceResponse(
                name="" if by_id else name,
                topic_id=topic_id if by_id else UUID(int=0),
                partition_responses=tuple(parts),
            )
        )
    services = cast(Any, SimpleNamespace(view=SimpleNamespace(brokers={})))
    data = encode_rows(services, "PLAINTEXT", version, 99, rows)
    body = encode(ProduceResponse(responses=tuple(responses)), version)
    head = struct.pack(">ii", len(data) - 4, 99) + (b"\0" if version >= 9 else b"")
    assert data == head + body
