"""Assignors: exact cover, worked examples, few moves, two-step release."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headwater.client.core.assignors import (
    Subscription,
    assign_cooperative,
    assign_range,
    assign_roundrobin,
    assign_sticky,
    assignors_named,
)
from headwater.client.core.classic_group import (
    ClassicMember,
    NextAction,
    decode_assignment,
    decode_subscription,
)
from headwater.client.values import TopicPartition
from headwater.errors import ErrorCode
from headwater.wire.apis.k11_join_group import JoinGroupResponse, JoinGroupResponseMember
from headwater.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from headwater.wire.consumer_protocol import TopicPartition as AssignedPartitions
from headwater.wire.schema import encode

COUNTS = st.dictionaries(st.sampled_from("tuv"), st.integers(0, 9), min_size=1)
TOPICS = st.sets(st.sampled_from("tuv"), min_size=1).map(lambda s: tuple(sorted(s)))
MEMBERS = st.dictionaries(
    st.text("abc", min_size=1, max_size=3), TOPICS.map(Subscription), min_size=1, max_size=5
)


@given(MEMBERS, COUNTS)
def test_every_assignor_covers_each_partition_once(members: dict, counts: dict) -> None:
    subscribed = {t for s in members.values() for t in s.topics}
    everything = sorted(
        TopicPartition(t, p) for t, n in counts.items() if t in subscribed for p in range(n)
    )
    for assign in (assign_range, assign_roundrobin, assign_sticky):
        given_out = assign(members, counts)
        assert sorted(tp for rows in given_out.values() for tp in rows) == everything
        for member, rows in given_out.items():
            assert {tp.topic for tp in rows} <= set(members[member].topics)


@given(st.integers(1, 6), st.integers(0, 20), st.data())
def test_sticky_is_balanced_and_moves_no_more_than_needed(n: int, count: int, data) -> None:
    owners = data.draw(st.lists(st.integers(0, n - 1), min_size=count, max_size=count))
    members = {
        f"m{m}": Subscription(
            ("t",), tuple(TopicPartition("t", p) for p in range(count) if owners[p] == m), 1
        )
        for m in range(n)
    }
    result = assign_sticky(members, {"t": count})
    sizes = sorted(len(rows) for rows in result.values())
    assert sizes[-1] - sizes[0] <= 1
    floor, extra = divmod(count, n)
    held = sorted((owners.count(m) for m in range(n)), reverse=True)
    must_move = sum(max(0, h - floor - (1 if i < extra else 0)) for i, h in enumerate(held))
    moved = sum(tp not in members[m].owned for m, rows in result.items() for tp in rows)
    assert moved == must_move


def test_range_worked_example() -> None:
    members = {m: Subscription(("t",)) for m in ("c0", "c1", "c2", "c3")}
    result = assign_range(members, {"t": 6})
    assert [[tp.partition for tp in result[m]] for m in sorted(result)] == [
        [0, 1],
        [2, 3],
        [4],
        [5],
    ]


def test_cooperative_waits_for_the_release() -> None:
    owned = tuple(TopicPartition("t", p) for p in range(4))
    members = {"a": Subscription(("t",), owned, 1), "b": Subscription(("t",))}
    first = assign_cooperative(members, {"t": 4})
    assert len(first["a"]) == 2
    assert first["b"] == []
    members["a"] = Subscription(("t",), tuple(first["a"]), 2)
    second = assign_cooperative(members, {"t": 4})
    assert len(second["b"]) == 2


def test_a_partition_that_two_members_of_one_generation_claim_has_no_owner() -> None:
    owned = (TopicPartition("t", 0),)
    members = {m: Subscription(("t",), owned, 3) for m in "ab"}
    assert sum(map(len, assign_cooperative(members, {"t": 1}).values())) == 0


def machine() -> ClassicMember:
    return ClassicMember(
        "g",
        assignors_named(("cooperative-sticky",)),
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        group_instance_id=None,
    )


def test_joining_with_a_member_id_and_leading() -> None:
    group = machine()
    refused = JoinGroupResponse(
        error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id="m1", protocol_name=""
    )
    assert group.on_join(refused) is NextAction.JOIN_AGAIN
    request = group.join_request(["t"], [TopicPartition("t", 0)])
    assert request.member_id == "m1"
    row = request.protocols[0]
    assert decode_subscription(row.metadata, None).owned == (TopicPartition("t", 0),)
    member = JoinGroupResponseMember(member_id="m1", metadata=row.metadata)
    joined = JoinGroupResponse(
        generation_id=4,
        protocol_name="cooperative-sticky",
        leader="m1",
        member_id="m1",
        members=(member,),
    )
    assert group.on_join(joined) is NextAction.SYNC
    assert group.group_topics == {"t"}
    assert len(group.sync_request({"t": 2}).assignments) == 1


def test_the_action_after_each_error() -> None:
    group = machine()
    group.member_id, group.generation = "m", 3
    assert group.on_heartbeat(ErrorCode.REBALANCE_IN_PROGRESS) is NextAction.JOIN_AGAIN
    assert group.on_heartbeat(ErrorCode.NOT_COORDINATOR) is NextAction.FIND_COORDINATOR
    assert group.on_heartbeat(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS) is NextAction.WAIT
    assert group.on_heartbeat(ErrorCode.ILLEGAL_GENERATION) is NextAction.JOIN_AGAIN
    assert group.member_id == "m"
    assert group.on_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID) is NextAction.JOIN_AGAIN
    assert group.member_id == ""
    assert group.on_heartbeat(ErrorCode.GROUP_AUTHORIZATION_FAILED) is NextAction.FAIL


def test_a_subscription_of_a_newer_version_is_read_as_the_newest_known_one() -> None:
    fields = encode(ConsumerProtocolSubscription(topics=("t",), generation_id=4), 3)
    of_the_next = b"and what version 9 adds"
    found = decode_subscription(b"\0\x09" + fields + of_the_next, None)
    assert (found.topics, found.generation) == (("t",), 4)
    row = AssignedPartitions(topic="t", partitions=(2,))
    fields = encode(ConsumerProtocolAssignment(assigned_partitions=(row,)), 3)
    assert decode_assignment(b"\0\x09" + fields + of_the_next) == [TopicPartition("t", 2)]


def test_an_assignment_of_version_0_names_topics_and_partitions() -> None:
    # As librdkafka writes it when it leads the group.
    fields = b"\0\0\0\x01" + b"\0\x01t" + b"\0\0\0\x01\0\0\0\x02"
    assert decode_assignment(b"\0\0" + fields + b"\0\0\0\0") == [TopicPartition("t", 2)]
