"""The hand-packed Fetch against the schema, both ways."""

from __future__ import annotations

from uuid import UUID

import pytest

from headwater.wire.apis.k01_fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from headwater.wire.headers import RequestHeader, ResponseHeader
from headwater.wire.schema import SchemaError, decoder, encode
from headwater_broker.replica.follower_fetch_codec import (
    FETCH_VERSION,
    FetchHead,
    PartitionFetch,
    pack_fetch,
    parse_fetch,
)
from headwater_broker.replica.truncation import EpochEnd

A, B = UUID(int=1 << 100), UUID(int=5)


@pytest.mark.parametrize("cluster_id", [None, "c" * 200, "abc"])
def test_requests_decode_with_the_schema(cluster_id: str | None) -> None:
    head = FetchHead(9, b"me", cluster_id, 3, 1 << 40, 500, 1, 10_000, 77, 4)
    asks = [
        PartitionFetch(A.bytes, 0, 5, 100, 4, 10, 1000),
        PartitionFetch(B.bytes, 1, 6, 200, -1, 0, 2000),
        PartitionFetch(A.bytes, 300, 7, 300, 7, 0, 3000),
    ]
    raw = pack_fetch(head, asks, [(B.bytes, 9), (B.bytes, 10)])
    header, at = decoder(RequestHeader, 2)(raw)
    assert (header.request_api_key, header.request_api_version) == (1, FETCH_VERSION)
    assert (header.correlation_id, header.client_id) == (9, "me")
    request, end = decoder(FetchRequest, FETCH_VERSION)(raw, at)
    assert end == len(raw)
    assert request.cluster_id == cluster_id
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == (3, 1 << 40)
    assert (request.session_id, request.session_epoch, request.max_wait_ms) == (77, 4, 500)
    found = {
        (topic.topic_id, row.partition): (
            row.current_leader_epoch,
            row.fetch_offset,
            row.last_fetched_epoch,
            row.log_start_offset,
            row.partition_max_bytes,
        )
        for topic in request.topics
        for row in topic.partitions
    }
    assert found == {
        (A, 0): (5, 100, 4, 10, 1000),
        (B, 1): (6, 200, -1, 0, 2000),
        (A, 300): (7, 300, 7, 0, 3000),
    }
    assert [(t.topic_id, t.partitions) for t in request.forgotten_topics_data] == [(B, (9, 10))]


def reply() -> FetchResponse:
    plain = PartitionData(
        partition_index=1, error_code=0, high_watermark=50, last_stable_offset=40,
        log_start_offset=3, records=b"r" * 300,
        aborted_transactions=(AbortedTransaction(producer_id=1, first_offset=2),),
    )  # fmt: skip
    diverging = PartitionData(
        partition_index=2, error_code=0, high_watermark=-1, records=b"", aborted_transactions=None,
        diverging_epoch=EpochEndOffset(epoch=4, end_offset=99),
        current_leader=LeaderIdAndEpoch(leader_id=7, leader_epoch=8),
    )  # fmt: skip
    refused = PartitionData(
        partition_index=0, error_code=6, high_watermark=-1, records=None, aborted_transactions=()
    )
    return FetchResponse(
        session_id=12,
        responses=(
            FetchableTopicResponse(topic_id=A, partitions=(plain, diverging)),
            FetchableTopicResponse(topic_id=B, partitions=(refused,)),
        ),
        node_endpoints=(NodeEndpoint(node_id=1, host="h", port=2),),
    )


def frame() -> bytes:
    return encode(ResponseHeader(correlation_id=31), 1) + encode(reply(), FETCH_VERSION)


def test_replies_of_the_schema_parse() -> None:
    raw = frame()
    correlation_id, parsed = parse_fetch(memoryview(raw))
    assert (correlation_id, parsed.error_code, parsed.session_id) == (31, 0, 12)
    plain, diverging, refused = parsed.partitions
    assert (plain.topic_id, plain.partition, plain.high_watermark) == (A.bytes, 1, 50)
    assert (plain.log_start_offset, plain.diverging) == (3, None)
    assert plain.records == b"r" * 300
    assert plain.records.obj is raw  # a slice, no copy
    assert diverging.diverging == EpochEnd(4, 99)
    assert (diverging.leader_id, diverging.leader_epoch) == (7, 8)
    assert (refused.topic_id, refused.error_code, len(refused.records)) == (B.bytes, 6, 0)


def test_cut_off_replies_are_schema_errors() -> None:
    raw = frame()
    for end in range(4, len(raw)):
        with pytest.raises(SchemaError):
            parse_fetch(memoryview(raw[:end]))
