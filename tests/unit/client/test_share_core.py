"""The pure parts of a share consumer: sessions, membership, acquired ranges, what is held."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from headwater import (
    AcknowledgeType,
    IllegalStateError,
    KafkaError,
    OptionError,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
)
from headwater.aio import AsyncShareConsumer
from headwater.client.core.share_consumer import ShareConsumerState
from headwater.client.core.share_member import AfterHeartbeat, ShareMember
from headwater.client.core.share_records import Acquired, AcquiredRange, decode_acquired
from headwater.client.core.share_session import FetchLimits, Place, ShareSession, runs_of
from headwater.errors import ErrorCode
from headwater.records.builder import build_batch
from headwater.testing.clocks import SeededEntropy
from headwater.wire.apis import k78_share_fetch as k78
from headwater.wire.apis import k79_share_acknowledge as k79
from headwater.wire.apis.k76_share_group_heartbeat import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)

TOPIC = UUID(int=7)
PLACE = Place(TOPIC, 0)
T0 = TopicPartition("t", 0)
LIMITS = FetchLimits(500, 1, 1000, 10, 0)
ACCEPT, RELEASE, REJECT, RENEW = (int(kind) for kind in AcknowledgeType)


def batch(first: int, count: int) -> bytes:
    rows = [(1000 + n, None, b"%d" % (first + n), ()) for n in range(count)]
    return bytes(build_batch(rows, base_offset=first, leader_epoch=3))


def state(*, is_explicit: bool = False) -> ShareConsumerState:
    return ShareConsumerState("g", "m", is_explicit=is_explicit, check_crcs=True)


def fetched(
    core: ShareConsumerState,
    records: bytes,
    *ranges: tuple[int, int, int],
    now: float = 0.0,
    acknowledge_error: int = 0,
) -> ShareSession:
    """A fetch of one partition from node 1, answered with these records and ranges."""
    core.fetch_request(1, {PLACE: T0}, LIMITS)
    session = core.session(1)
    row = k78.PartitionData(
        partition_index=0,
        error_code=0,
        acknowledge_error_code=acknowledge_error,
        current_leader=k78.LeaderIdAndEpoch(leader_id=1, leader_epoch=3),
        records=records,
        acquired_records=tuple(
            k78.AcquiredRecords(first_offset=a, last_offset=b, delivery_count=n)
            for a, b, n in ranges
        ),
    )
    topic = k78.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=(row,))
    reply = k78.ShareFetchResponse(
        throttle_time_ms=0,
        error_code=0,
        acquisition_lock_timeout_ms=30_000,
        responses=(topic,),
        node_endpoints=(),
    )
    assert core.on_fetch(session, reply, now) == []
    return session


def acknowledged(core: ShareConsumerState, error: int = 0) -> list[tuple[int, int, int]]:
    """A ShareAcknowledge to node 1, answered; what it brought as (first, last, type)."""
    session = core.session(1)
    request = core.acknowledge_request(1)
    row = k79.PartitionData(
        partition_index=0,
        error_code=error,
        current_leader=k79.LeaderIdAndEpoch(leader_id=1, leader_epoch=3),
    )
    topic = k79.ShareAcknowledgeTopicResponse(topic_id=TOPIC, partitions=(row,))
    reply = k79.ShareAcknowledgeResponse(
        throttle_time_ms=0,
        error_code=0,
        acquisition_lock_timeout_ms=30_000,
        responses=(topic,),
        node_endpoints=(),
    )
    core.on_acknowledge(session, reply, 0.0)
    return [
        (b.first_offset, b.last_offset, b.acknowledge_types[0])
        for topic in request.topics
        for p in topic.partitions
        for b in p.acknowledgement_batches
    ]


def offsets(rows: list[ShareRecord]) -> list[int]:
    return [row.offset for row in rows]


def test_only_acquired_offsets_are_records_and_the_others_are_gaps() -> None:
    ranges = (AcquiredRange(9, 11, 1), AcquiredRange(13, 16, 2), AcquiredRange(30, 31, 1))
    view = memoryview(batch(10, 3) + batch(13, 3))
    found = decode_acquired(Acquired("t", 0, view, ranges), check_crcs=True)
    assert offsets(found.records) == [10, 11, 13, 14, 15]
    assert [row.delivery_count for row in found.records] == [1, 1, 2, 2, 2]
    assert found.records[0].value == b"10"
    assert found.gaps == [(9, 9)]
    assert found.unread == [(16, 16), (30, 31)]


def test_unread_offsets_are_released_and_gaps_are_told() -> None:
    core = state()
    fetched(core, batch(10, 2), (9, 12, 1))
    assert offsets(core.take(10, 1.0)) == [10, 11]
    core.accept_held()
    core.flush()
    assert acknowledged(core) == [(9, 9, 0), (10, 11, ACCEPT), (12, 12, RELEASE)]


def test_a_fetch_brings_what_waits_once_the_session_is_open() -> None:
    session = ShareSession(1, "g", "m")
    first = session.fetch_request([PLACE], LIMITS)
    assert first.share_session_epoch == 0
    assert [t.topic_id for t in first.topics] == [TOPIC]
    session.answered()
    session.acknowledge(PLACE, 4, ACCEPT)
    session.acknowledge(PLACE, 5, ACCEPT)
    session.acknowledge(PLACE, 6, REJECT)
    second = session.fetch_request([PLACE], LIMITS)
    assert second.share_session_epoch == 1
    rows = second.topics[0].partitions[0].acknowledgement_batches
    assert [(r.first_offset, r.last_offset, r.acknowledge_types) for r in rows] == [
        (4, 5, (ACCEPT,)),
        (6, 6, (REJECT,)),
    ]
    assert session.answered() == {PLACE: {4: ACCEPT, 5: ACCEPT, 6: REJECT}}
    third = session.fetch_request([], LIMITS)
    assert third.topics == ()
    assert [(f.topic_id, f.partitions) for f in third.forgotten_topics_data] == [(TOPIC, (0,))]


def test_a_renewal_needs_a_request_of_its_own_and_is_left_out_of_the_last_one() -> None:
    session = ShareSession(1, "g", "m")
    session.fetch_request([PLACE], LIMITS)
    session.answered()
    session.acknowledge(PLACE, 4, ACCEPT)
    assert not session.needs_acknowledge
    session.acknowledge(PLACE, 5, RENEW)
    assert session.needs_acknowledge
    request = session.acknowledge_request()
    assert request.is_renew_ack
    session.answered()
    session.acknowledge(PLACE, 6, ACCEPT)
    session.acknowledge(PLACE, 7, RENEW)
    last = session.acknowledge_request(close=True)
    assert (last.share_session_epoch, last.is_renew_ack) == (-1, False)
    (row,) = last.topics[0].partitions[0].acknowledgement_batches
    assert (row.first_offset, row.last_offset) == (6, 6)


def test_the_session_epoch_wraps_past_zero() -> None:
    session = ShareSession(1, "g", "m")
    session.epoch = 2**31 - 1
    session.answered()
    assert session.epoch == 1


def test_implicit_mode_accepts_what_was_taken_and_no_more() -> None:
    core = state()
    fetched(core, batch(0, 5), (0, 4, 1))
    assert offsets(core.take(2, 1.0)) == [0, 1]
    core.accept_held()
    assert core.flush()
    assert acknowledged(core) == [(0, 1, ACCEPT)]
    assert offsets(core.take(9, 1.0)) == [2, 3, 4]
    assert core.held_count == 3
    assert core.acknowledged == 2


def test_explicit_mode_demands_a_word_on_each_record() -> None:
    core = state(is_explicit=True)
    fetched(core, batch(0, 3), (0, 2, 1))
    core.take(3, 1.0)
    core.acknowledge(T0, 0, AcknowledgeType.ACCEPT)
    with pytest.raises(IllegalStateError, match="t-0 offset 1 is not acknowledged"):
        core.check_settled()
    core.acknowledge(T0, 1, AcknowledgeType.REJECT)
    core.acknowledge(T0, 2, AcknowledgeType.RENEW)
    core.check_settled()
    with pytest.raises(IllegalStateError, match="t-0 offset 0 is not held"):
        core.acknowledge(T0, 0, AcknowledgeType.ACCEPT)
    core.flush()
    assert acknowledged(core) == [(0, 0, ACCEPT), (1, 1, REJECT), (2, 2, RENEW)]
    core.acknowledge(T0, 2, AcknowledgeType.ACCEPT)
    assert core.held_count == 0


def test_a_word_after_a_renewal_takes_its_place() -> None:
    core = state(is_explicit=True)
    fetched(core, batch(0, 1), (0, 0, 1))
    core.take(1, 1.0)
    core.acknowledge(T0, 0, AcknowledgeType.RENEW)
    core.acknowledge(T0, 0, AcknowledgeType.RELEASE)
    core.flush()
    assert acknowledged(core) == [(0, 0, RELEASE)]


def test_records_whose_lock_has_timed_out_are_not_returned() -> None:
    core = state()
    fetched(core, batch(0, 3), (0, 2, 1), now=100.0)
    assert offsets(core.take(1, 129.9)) == [0]
    assert core.take(5, 130.0) == []
    assert core.lapsed == 2


def test_a_lost_session_is_told_and_its_records_are_gone() -> None:
    core = state(is_explicit=True)
    session = fetched(core, batch(0, 3), (0, 2, 1))
    core.take(2, 1.0)
    core.acknowledge(T0, 0, AcknowledgeType.ACCEPT)
    collector = core.collect()
    core.lose(session, KafkaError(ErrorCode.NETWORK_EXCEPTION, "gone"))
    core.acknowledge(T0, 1, AcknowledgeType.ACCEPT)
    assert core.take(5, 1.0) == []
    assert [(r.offsets, r.error and r.error.code.name) for r in core.results] == [
        ([0], "NETWORK_EXCEPTION"),
        ([1], "SHARE_SESSION_NOT_FOUND"),
    ]
    found = collector[T0]
    assert found is not None
    assert found.code is ErrorCode.NETWORK_EXCEPTION
    assert core.session(1) is not session
    assert core.session(1).epoch == 0


def test_acknowledgements_are_tried_again_a_few_times() -> None:
    core = state()
    fetched(core, batch(0, 1), (0, 0, 1))
    core.take(1, 1.0)
    core.accept_held()
    core.flush()
    for _ in range(4):
        assert acknowledged(core, ErrorCode.COORDINATOR_NOT_AVAILABLE) == [(0, 0, ACCEPT)]
        assert core.unsettled == [T0]
        assert not core.results
    assert acknowledged(core, ErrorCode.COORDINATOR_NOT_AVAILABLE) == [(0, 0, ACCEPT)]
    (result,) = core.results
    assert result.error is not None
    assert result.error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert core.unsettled == []


@pytest.mark.parametrize("code", [ErrorCode.INVALID_RECORD_STATE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_other_refusals_are_final(code: ErrorCode) -> None:
    core = state()
    fetched(core, batch(0, 1), (0, 0, 1))
    core.take(1, 1.0)
    core.accept_held()
    core.flush()
    acknowledged(core, code)
    (result,) = core.results
    assert (result.partition, result.offsets) == (T0, [0])
    assert result.error is not None
    assert result.error.code is code
    assert core.refused == 1


def test_a_batch_that_cannot_be_read_is_released_and_raised_once() -> None:
    core = state()
    bad = bytearray(batch(2, 2))
    bad[-1] ^= 0xFF
    fetched(core, batch(0, 2), (0, 1, 1))
    fetched(core, bytes(bad), (2, 3, 1))
    assert offsets(core.take(9, 1.0)) == [0, 1]
    with pytest.raises(KafkaError, match="CRC"):
        core.take(9, 1.0)
    assert core.take(9, 1.0) == []
    core.flush()
    assert acknowledged(core) == [(2, 3, RELEASE)]


@pytest.mark.parametrize("is_decoded", [False, True])
def test_what_is_acquired_of_a_topic_that_is_left_goes_back(is_decoded: bool) -> None:
    core = state()
    core.subscribe(["t"])
    fetched(core, batch(0, 3), (0, 2, 1))
    if is_decoded:
        assert offsets(core.take(1, 1.0)) == [0]
    core.subscribe(["u"])
    assert core.take(9, 1.0) == []
    core.flush()
    assert acknowledged(core) == [(int(is_decoded), 2, RELEASE)]


def test_what_an_interceptor_leaves_out_needs_no_word() -> None:
    core = state(is_explicit=True)
    fetched(core, batch(0, 3), (0, 2, 1))
    rows = core.take(3, 1.0)
    core.accept_left_out(rows, rows[1:])
    with pytest.raises(IllegalStateError, match="offset 1 is not acknowledged"):
        core.check_settled()
    core.flush()
    assert acknowledged(core) == [(0, 0, ACCEPT)]


def test_rows_that_are_not_the_next_ones_are_not_held() -> None:
    core = state()
    fetched(core, batch(0, 2), (0, 1, 1))
    rows = core.peek(2, 1.0)
    assert core.hold(rows)
    assert not core.hold(rows)


def heartbeat(member: ShareMember, epoch: int, code: int = 0, *partitions: int) -> AfterHeartbeat:
    assignment = None
    if partitions:
        row = TopicPartitions(topic_id=TOPIC, partitions=partitions)
        assignment = Assignment(topic_partitions=(row,))
    reply = ShareGroupHeartbeatResponse(
        throttle_time_ms=0,
        error_code=code,
        member_id=member.member_id,
        member_epoch=epoch,
        heartbeat_interval_ms=3000,
        assignment=assignment,
    )
    return member.on_heartbeat(member.heartbeat(), reply)


def test_a_member_joins_and_then_tells_only_news() -> None:
    member = ShareMember("g", SeededEntropy(1), "rack-a")
    member.subscribe(("t",))
    join = member.heartbeat()
    assert (join.member_epoch, join.rack_id, join.subscribed_topic_names) == (0, "rack-a", ("t",))
    assert heartbeat(member, 4, 0, 0, 1) is AfterHeartbeat.WAIT
    assert member.assigned == {Place(TOPIC, 0), Place(TOPIC, 1)}
    assert member.interval_s == 3.0
    steady = member.heartbeat()
    assert (steady.member_epoch, steady.rack_id, steady.subscribed_topic_names) == (4, None, None)
    assert heartbeat(member, 4) is AfterHeartbeat.WAIT
    assert len(member.assigned) == 2
    member.subscribe(("t", "u"))
    assert member.heartbeat().subscribed_topic_names == ("t", "u")
    assert member.goodbye().member_epoch == -1


@pytest.mark.parametrize(
    ("code", "after"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, AfterHeartbeat.JOIN),
        (ErrorCode.FENCED_MEMBER_EPOCH, AfterHeartbeat.JOIN),
        (ErrorCode.NOT_COORDINATOR, AfterHeartbeat.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, AfterHeartbeat.RETRY),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, AfterHeartbeat.FAIL),
    ],
)
def test_what_follows_from_a_refused_heartbeat(code: ErrorCode, after: AfterHeartbeat) -> None:
    member = ShareMember("g", SeededEntropy(1))
    member.subscribe(("t",))
    heartbeat(member, 4, 0, 0)
    assert heartbeat(member, 0, code) is after
    is_fenced = after is AfterHeartbeat.JOIN
    assert member.is_joined is not is_fenced
    assert bool(member.assigned) is not is_fenced


def test_runs_join_neighbours_of_one_type() -> None:
    kinds = {5: ACCEPT, 4: ACCEPT, 6: REJECT, 9: REJECT}
    assert runs_of(kinds) == [(4, 5, ACCEPT), (6, 6, REJECT), (9, 9, REJECT)]


def test_a_share_record_is_a_consumer_record_with_a_count() -> None:
    record = ShareRecord("t", 0, 5, 1000, 0, None, b"v", [], 3)
    record.delivery_count = 2
    other = record._replace(value=b"w")
    assert (other.value, other.delivery_count, other.offset) == (b"w", 2, 5)
    assert "delivery_count=2" in repr(record)


@pytest.mark.parametrize("face", [ShareConsumer, AsyncShareConsumer])
def test_options_of_other_consumers_are_refused_with_their_remedy(face: Any) -> None:
    remedy = "has no option 'auto_offset_reset': set share.auto.offset.reset of the group"
    with pytest.raises(OptionError, match=remedy):
        face("t", bootstrap_servers="a:1", group_id="g", auto_offset_reset="earliest")
    with pytest.raises(OptionError, match="has no option 'max_pol_records'; did you mean"):
        face("t", bootstrap_servers="a:1", group_id="g", max_pol_records=1)


def test_a_partition_that_was_not_asked_for_is_passed_over() -> None:
    core = state()
    core.fetch_request(1, {PLACE: T0}, LIMITS)
    row = k78.PartitionData(
        partition_index=9,
        error_code=0,
        acknowledge_error_code=0,
        current_leader=k78.LeaderIdAndEpoch(leader_id=1, leader_epoch=3),
        records=b"",
        acquired_records=(),
    )
    reply = k78.ShareFetchResponse(
        throttle_time_ms=0,
        error_code=0,
        acquisition_lock_timeout_ms=0,
        responses=(k78.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=(row,)),),
        node_endpoints=(),
    )
    assert core.on_fetch(core.session(1), reply, 0.0) == []
    assert core.session(1).epoch == 1
