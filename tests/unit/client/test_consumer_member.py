"""A member of the consumer protocol (KIP-848): what its heartbeats say, what responses do to it."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest

from headwater.client.core.consumer_group import Beat, ConsumerMember, Terms, by_topic
from headwater.errors import ErrorCode
from headwater.wire.apis.k68_consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

TOPIC, OTHER = UUID(int=1), UUID(int=2)
TERMS = Terms(topics=("b", "a"), assignor="range", rebalance_timeout_ms=7_000, rack_id="r")


def response(
    epoch: int = 1, assigned: dict[UUID, tuple[int, ...]] | None = None, error: int = 0
) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if assigned is not None:
        rows = (TopicPartitions(topic_id=t, partitions=p) for t, p in assigned.items())
        assignment = Assignment(topic_partitions=tuple(rows))
    return ConsumerGroupHeartbeatResponse(
        error_code=error,
        error_message="why" if error else None,
        member_id="m",
        member_epoch=epoch,
        heartbeat_interval_ms=500,
        assignment=assignment,
    )


def joined(assigned: dict[UUID, tuple[int, ...]], instance: str | None = None) -> ConsumerMember:
    member = ConsumerMember("g", "m", instance)
    member.heartbeat_request(TERMS)
    assert member.on_heartbeat(response(1, assigned)) is Beat.GOOD
    return member


def test_the_first_heartbeat_says_everything() -> None:
    asked = ConsumerMember("g", "m", "i").heartbeat_request(TERMS)
    assert (asked.group_id, asked.member_id, asked.member_epoch) == ("g", "m", 0)
    assert (asked.instance_id, asked.rack_id, asked.server_assignor) == ("i", "r", "range")
    assert asked.subscribed_topic_names == ("a", "b") and asked.subscribed_topic_regex is None
    assert asked.rebalance_timeout_ms == 7_000 and asked.topic_partitions == ()


def test_later_ones_say_what_has_changed() -> None:
    member = joined({TOPIC: (0, 1)})
    assert member.target == {TOPIC: {0, 1}} and member.interval_ms == 500
    assert member.is_unsettled
    quiet = member.heartbeat_request(TERMS)
    assert quiet.member_epoch == 1 and quiet.rebalance_timeout_ms == -1
    assert quiet.subscribed_topic_names is None and quiet.topic_partitions is None
    member.on_heartbeat(response())
    member.acknowledge(by_topic([(TOPIC, 1), (TOPIC, 0)]))
    assert not member.is_unsettled
    told = member.heartbeat_request(TERMS).topic_partitions
    assert told == (TopicPartitions(topic_id=TOPIC, partitions=(0, 1)),)
    member.on_heartbeat(response())
    assert member.heartbeat_request(TERMS).topic_partitions is None
    member.on_heartbeat(response())
    renamed = member.heartbeat_request(replace(TERMS, topics=("c",)))
    assert renamed.subscribed_topic_names == ("c",) and renamed.rebalance_timeout_ms == -1


def test_a_pattern_takes_the_place_of_names_and_back() -> None:
    member = ConsumerMember("g", "m", None)
    pattern = Terms(pattern="a.*")
    first = member.heartbeat_request(pattern)
    assert first.subscribed_topic_names == () and first.subscribed_topic_regex == "a.*"
    member.on_heartbeat(response())
    named = member.heartbeat_request(Terms(topics=("a",)))
    assert named.subscribed_topic_names == ("a",) and named.subscribed_topic_regex == ""


def test_after_a_lost_reply_everything_is_said_again() -> None:
    """So the coordinator answers with the assignment, which the lost reply may have had."""
    member = joined({TOPIC: (0,)})
    member.acknowledge({TOPIC: frozenset({0})})
    member.heartbeat_request(TERMS)
    member.on_lost_reply()
    again = member.heartbeat_request(TERMS)
    assert again.member_epoch == 1 and again.rebalance_timeout_ms == 7_000
    assert again.subscribed_topic_names == ("a", "b") and again.topic_partitions


def test_what_changes_while_a_heartbeat_is_out_is_not_taken_for_said() -> None:
    member = joined({TOPIC: (0,)})
    member.heartbeat_request(TERMS)
    member.acknowledge({TOPIC: frozenset({0})})
    member.on_heartbeat(response())
    assert member.heartbeat_request(TERMS).topic_partitions is not None


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    ],
)
def test_a_lost_membership_owns_nothing_and_joins_again(code: ErrorCode) -> None:
    member = joined({TOPIC: (0,)})
    member.acknowledge({TOPIC: frozenset({0})})
    assert member.on_heartbeat(response(error=code)) is Beat.FENCED
    again = member.heartbeat_request(TERMS)
    assert (again.member_id, again.member_epoch, again.topic_partitions) == ("m", 0, ())
    assert member.target is None and member.owned == {}


@pytest.mark.parametrize(
    ("code", "beat"),
    [
        (ErrorCode.NOT_COORDINATOR, Beat.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, Beat.FIND_COORDINATOR),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, Beat.WAIT),
        (ErrorCode.UNSUPPORTED_ASSIGNOR, Beat.FAIL),
        (ErrorCode.INVALID_REGULAR_EXPRESSION, Beat.FAIL),
        (ErrorCode.UNRELEASED_INSTANCE_ID, Beat.FAIL),
        (ErrorCode.FENCED_INSTANCE_ID, Beat.FAIL),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, Beat.FAIL),
    ],
)
def test_errors(code: ErrorCode, beat: Beat) -> None:
    member = joined({TOPIC: (0,)})
    assert member.on_heartbeat(response(error=code)) is beat
    assert member.error is code and member.message == "why"
    assert member.target == {TOPIC: {0}}, "the partitions stay until the session ends"


def test_a_group_that_cannot_be_joined_is_an_error() -> None:
    member = ConsumerMember("g", "m", None)
    member.heartbeat_request(TERMS)
    assert member.on_heartbeat(response(error=ErrorCode.GROUP_ID_NOT_FOUND)) is Beat.FAIL


def test_leaving_is_for_good_or_for_a_while() -> None:
    assert joined({}).leave_request().member_epoch == -1
    static = joined({}, "i").leave_request()
    assert static.member_epoch == -2 and static.instance_id == "i"


def test_topics_without_partitions_are_left_out() -> None:
    member = joined({TOPIC: (), OTHER: (3,)})
    assert member.target == {OTHER: {3}}
    member.acknowledge({TOPIC: frozenset(), OTHER: frozenset({3})})
    assert not member.is_unsettled
