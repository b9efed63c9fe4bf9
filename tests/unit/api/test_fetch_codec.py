"""Fetch requests parsed in place, against the general codec, in every version."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.wire.apis.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from headwater.wire.schema import encode
from headwater_broker.api.fetch.request_codec import parse_fetch

VERSIONS = range(4, 19)
ID = UUID("fedcba98-7654-3210-fedc-ba9876543210")

int32 = st.integers(-1, 2**31 - 1)
int64 = st.integers(-1, 2**63 - 1)
names = st.text("abc.-é", min_size=1, max_size=20)


@st.composite
def requests(draw: st.DrawFn, version: int) -> FetchRequest:
    topics = tuple(
        FetchTopic(
            topic="" if version >= 13 else draw(names),
            topic_id=ID if version >= 13 else UUID(int=0),
            partitions=tuple(
                FetchPartition(
                    partition=draw(int32),
                    fetch_offset=draw(int64),
                    partition_max_bytes=draw(int32),
                    current_leader_epoch=draw(int32) if version >= 9 else -1,
                    last_fetched_epoch=draw(int32) if version >= 12 else -1,
                    log_start_offset=draw(int64) if version >= 5 else -1,
                    high_watermark=draw(int64) if version >= 18 else 2**63 - 1,
                )
                for _ in range(draw(st.integers(0, 3)))
            ),
        )
        for _ in range(draw(st.integers(0, 3)))
    )
    forgotten = tuple(
        ForgottenTopic(
            topic="" if version >= 13 else draw(names),
            topic_id=ID if version >= 13 else UUID(int=0),
            partitions=tuple(draw(st.lists(int32, max_size=3))),
        )
        for _ in range(draw(st.integers(0, 2)) if version >= 7 else 0)
    )
    return FetchRequest(
        cluster_id=draw(st.none() | names) if version >= 12 else None,
        replica_id=draw(int32) if version <= 14 else -1,
        replica_state=ReplicaState(replica_id=draw(int32), replica_epoch=draw(int64))
        if version >= 15
        else ReplicaState(),
        max_wait_ms=draw(int32),
        min_bytes=draw(int32),
        max_bytes=draw(int32),
        isolation_level=draw(st.integers(0, 1)),
        session_id=draw(int32) if version >= 7 else 0,
        session_epoch=draw(int32) if version >= 7 else -1,
        topics=topics,
        forgotten_topics_data=forgotten,
        rack_id=draw(st.text("ab", max_size=3)) if version >= 11 else "",
    )


@given(st.data())
def test_the_parser_agrees_with_the_codec(data: st.DataObject) -> None:
    version = data.draw(st.sampled_from(VERSIONS))
    request = data.draw(requests(version))
    view = memoryview(b"head" + encode(request, version))
    frame = parse_fetch(view, 4, len(view), version)
    if version <= 14:
        assert frame.replica_id == request.replica_id
    else:
        assert frame.replica_id == request.replica_state.replica_id
        assert frame.replica_epoch == request.replica_state.replica_epoch
    assert frame.max_wait_ms == request.max_wait_ms
    assert frame.min_bytes == request.min_bytes
    assert frame.max_bytes == request.max_bytes
    assert frame.rack_id == request.rack_id
    assert frame.isolation == request.isolation_level
    assert (frame.session_id, frame.session_epoch) == (request.session_id, request.session_epoch)
    asked = [
        (
            ID.bytes if version >= 13 else topic.topic,
            p.partition,
            p.fetch_offset,
            p.partition_max_bytes,
            p.current_leader_epoch,
            p.last_fetched_epoch,
            p.log_start_offset,
        )
        for topic in request.topics
        for p in topic.partitions
    ]
    assert asked == [
        (
            i.topic,
            i.partition,
            i.fetch_offset,
            i.max_bytes,
            i.current_leader_epoch,
            i.last_fetched_epoch,
            i.log_start_offset,
        )
        for i in frame.items
    ]
    assert frame.forgotten == [
        (ID.bytes if version >= 13 else topic.topic, partition)
        for topic in request.forgotten_topics_data
        for partition in topic.partitions
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_cut_frame_is_refused(version: int) -> None:
    topic = FetchTopic(
        topic="" if version >= 13 else "t",
        topic_id=ID if version >= 13 else UUID(int=0),
        partitions=(FetchPartition(partition=0, fetch_offset=1, partition_max_bytes=2),),
    )
    body = encode(FetchRequest(max_wait_ms=1, min_bytes=1, topics=(topic,)), version)
    for size in range(len(body)):
        with pytest.raises(Exception):
            parse_fetch(memoryview(body[:size]), 0, size, version)
