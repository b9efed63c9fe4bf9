"""The classic group protocol, by lists of events."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import ErrorCode
from headwater.wire.consumer_protocol import ConsumerProtocolSubscription, TopicPartition
from headwater.wire.schema import encode
from headwater_broker.coordinator.group.classic.states import (
    TRANSITIONS,
    GroupEvent,
    GroupState,
    GroupTransitionError,
    next_state,
)
from unit.coordinator.classic_group_machine import REBALANCE_MS, SESSION_MS, Machine


def test_one_member_joins_syncs_and_is_stable() -> None:
    m = Machine()
    joined = m.replies[m.join()]
    assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
    assert joined.leader == joined.member_id
    assert [row.member_id for row in joined.members] == [joined.member_id]
    synced = m.replies[m.sync(joined.member_id, 1, **{joined.member_id: b"all"})]
    assert (synced.error_code, synced.assignment) == (0, b"all")
    assert m.group.state is GroupState.STABLE
    assert m.heartbeat(joined.member_id, 1) == ErrorCode.NONE


def test_a_second_member_rebalances_the_first() -> None:
    m = Machine()
    leader, follower = m.stable_pair()
    assert m.group.generation == 2
    assert [x.member_id for x in m.group.members.values()] == [leader, follower]


def test_members_are_told_of_a_rebalance_by_heartbeat_and_sync() -> None:
    m = Machine()
    leader, follower = m.stable_pair()
    m.join()
    assert m.heartbeat(leader, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert m.replies[m.sync(follower, 2)] == ErrorCode.REBALANCE_IN_PROGRESS


def test_only_the_leader_is_told_the_members() -> None:
    m = Machine()
    leader, follower = m.stable_pair()
    third = m.join()
    follower_again, leader_again = m.join(follower), m.join(leader)
    assert len(m.replies[leader_again].members) == 3
    assert m.replies[follower_again].members == m.replies[third].members == ()


def test_who_does_not_rejoin_in_time_is_out() -> None:
    m = Machine()
    leader, follower = m.stable_pair()
    again = m.join(leader)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        m.pass_ms(5_000)
        assert m.heartbeat(follower, 2) == ErrorCode.REBALANCE_IN_PROGRESS  # alive, but elsewhere
    assert again not in m.replies
    m.pass_ms(5_000)
    assert m.replies[again].generation_id == 3
    assert m.heartbeat(follower, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_out_after_its_session() -> None:
    m = Machine()
    leader, follower = m.stable_pair()
    m.pass_ms(SESSION_MS - 1)
    assert m.heartbeat(leader, 2) == ErrorCode.NONE
    m.pass_ms(1)
    assert list(m.group.members) == [leader]
    assert m.heartbeat(leader, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    assert m.heartbeat(follower, 2) == ErrorCode.UNKNOWN_MEMBER_ID
    assert m.replies[m.join(leader)].generation_id == 3


def test_a_parked_sync_keeps_its_member_alive_and_a_missing_one_does_not() -> None:
    m = Machine()
    leader, follower = m.stable_pair()
    m.join(leader)
    joined = m.replies[m.join(follower)]
    assert joined.generation_id == 3
    parked = m.sync(follower, 3)
    for _ in range(REBALANCE_MS // 5_000):
        m.pass_ms(5_000)
        if leader in m.group.members:
            m.heartbeat(leader, 3)  # alive, but it never brings the assignment
    assert m.replies[parked].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert list(m.group.members) == [follower]
    assert m.replies[m.join(follower)].leader == follower


def test_a_new_dynamic_member_must_come_back_with_its_id() -> None:
    m = Machine()
    told = m.replies[m.join(needs_known_id=True, fresh_id="x")]
    assert (told.error_code, told.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "x")
    assert m.replies[m.join("x")].generation_id == 1
    # An id that is never used is forgotten, and the group with it.
    other = Machine()
    other.join(needs_known_id=True)
    other.pass_ms(SESSION_MS)
    assert other.shard.groups == {}


def test_a_pending_member_holds_the_rebalance_back() -> None:
    m = Machine()
    leader, follower = m.stable_pair()
    m.join(needs_known_id=True, fresh_id="x")
    again = m.join(leader)
    m.join(follower)
    assert again not in m.replies
    m.join("x")
    assert len(m.replies[again].members) == 3


def test_leaving_ends_at_once_and_the_last_one_empties_the_group() -> None:
    m = Machine()
    leader, follower = m.stable_pair()
    assert m.leave(leader) == ErrorCode.NONE
    assert m.heartbeat(follower, 2) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = m.replies[m.join(follower)]
    assert (joined.leader, joined.generation_id) == (follower, 3)
    assert m.leave(follower) == ErrorCode.NONE
    assert m.group.state is GroupState.EMPTY
    assert m.group.generation == 4
    assert m.leave(follower) == ErrorCode.UNKNOWN_MEMBER_ID


def assigned_pair(m: Machine) -> tuple[str, str, int]:
    """Leader, follower, generation: only the leader has synced."""
    leader = m.replies[m.join()].member_id
    m.sync(leader, 1)
    joining = m.join()
    m.join(leader)
    follower = m.replies[joining].member_id
    m.sync(leader, 2, **{leader: b"a", follower: b"b"})
    return leader, follower, 2


def test_who_heartbeats_but_never_syncs_goes_after_the_rebalance_timeout() -> None:
    m = Machine()
    leader, silent, generation = assigned_pair(m)
    assert m.group.state is GroupState.STABLE
    for _ in range(REBALANCE_MS // 5_000):
        assert m.heartbeat(leader, generation) == m.heartbeat(silent, generation) == 0
        m.pass_ms(5_000)
    assert m.heartbeat(silent, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert m.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_who_syncs_late_stays() -> None:
    m = Machine()
    leader, late, generation = assigned_pair(m)
    assert m.replies[m.sync(late, generation)].assignment == b"b"
    for _ in range(REBALANCE_MS // 5_000 + 2):
        assert m.heartbeat(leader, generation) == m.heartbeat(late, generation) == 0
        m.pass_ms(5_000)
    assert m.group.state is GroupState.STABLE


def test_the_initial_rebalance_waits_for_more_members() -> None:
    m = Machine(initial_rebalance_delay_ms=3_000)
    first = m.join()
    m.pass_ms(2_000)
    second = m.join()
    m.pass_ms(1_500)
    assert not {first, second} & m.replies.keys()  # one came during the delay: wait once more
    m.pass_ms(2_500)
    assert m.replies[first].generation_id == m.replies[second].generation_id == 1


def test_a_repeated_join_is_answered_with_the_current_generation() -> None:
    m = Machine()
    _, follower = m.stable_pair()
    assert m.replies[m.join(follower)].generation_id == 2
    assert m.group.state is GroupState.STABLE
    assert m.join(follower, protocols=(("range", b"other"),)) not in m.replies


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"session_timeout_ms": 1}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("other", b""),)}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    ],
)
def test_joins_that_are_refused(changes: dict[str, Any], code: ErrorCode) -> None:
    m = Machine()
    m.stable_pair()
    assert m.replies[m.join(**changes)].error_code == code
    assert m.group.state is GroupState.STABLE


def test_a_full_group_takes_nobody() -> None:
    m = Machine(max_size=2)
    m.stable_pair()
    assert m.replies[m.join()].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_each_member_votes_for_its_first_common_protocol() -> None:
    m = Machine()
    both = (("sticky", b"s"), ("range", b"r"))
    first = m.replies[m.join(protocols=both)].member_id
    m.join(protocols=(("range", b"r"),))
    assert m.replies[m.join(first, protocols=both)].protocol_name == "range"


def test_stale_generations_are_fenced() -> None:
    m = Machine()
    leader, _ = m.stable_pair()
    assert m.heartbeat(leader, 1) == ErrorCode.ILLEGAL_GENERATION
    assert m.replies[m.sync(leader, 1)] == ErrorCode.ILLEGAL_GENERATION
    assert m.commit(5, leader, 1) == ErrorCode.ILLEGAL_GENERATION


def test_a_static_member_returns_under_a_new_id_without_a_rebalance() -> None:
    m = Machine()
    first = m.replies[m.join(instance_id="a")].member_id
    m.sync(first, 1, **{first: b"all"})
    back = m.replies[m.join(instance_id="a")]
    assert (back.error_code, back.generation_id, back.leader) == (0, 1, first)
    assert back.member_id != first
    assert m.group.state is GroupState.STABLE
    assert m.replies[m.sync(back.member_id, 1)].assignment == b"all"
    refused = m.join(first, instance_id="a")
    assert m.replies[refused].error_code == ErrorCode.FENCED_INSTANCE_ID
    m.restart()
    assert list(m.group.members) == [back.member_id]
    assert m.leave("", "a") == ErrorCode.NONE


def subscription(topics: tuple[str, ...], generation: int) -> tuple[tuple[str, bytes], ...]:
    """What a consumer sends that knows `generation`, and owns a partition of it."""
    owned = () if generation < 0 else (TopicPartition(topic="t", partitions=(0,)),)
    told = ConsumerProtocolSubscription(
        topics=topics, owned_partitions=owned, generation_id=generation
    )
    return (("range", (3).to_bytes(2, "big") + encode(told, 3)),)


def stable_statics(m: Machine) -> tuple[str, str]:
    """Two static members in generation 2; the first came again for it, and so tells what it has."""
    first = m.replies[m.join(instance_id="a", protocols=subscription(("t",), -1))].member_id
    joining = m.join(instance_id="b", protocols=subscription(("t",), -1))
    m.join(first, instance_id="a", protocols=subscription(("t",), 1))
    second = m.replies[joining].member_id
    m.sync(first, 2, **{first: b"one", second: b"two"})
    assert (m.group.state, m.group.leader_id) == (GroupState.STABLE, first)
    return first, second


def test_a_static_consumer_that_forgot_its_partitions_reads_the_same_topics() -> None:
    m = Machine()
    first, second = stable_statics(m)
    back = m.replies[m.join(instance_id="a", protocols=subscription(("t",), -1))]
    assert (back.generation_id, back.leader) == (2, first)
    assert m.heartbeat(second, 2) == ErrorCode.NONE, "nobody else notices"
    assert m.replies[m.sync(back.member_id, 2)].assignment == b"one"
    m.restart()
    assert m.replies[m.sync(back.member_id, 2)].assignment == b"one"


def test_a_static_consumer_that_reads_other_topics_rebalances() -> None:
    m = Machine()
    _, second = stable_statics(m)
    parked = m.join(instance_id="a", protocols=subscription(("t", "u"), -1))
    assert parked not in m.replies
    assert m.heartbeat(second, 2) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_static_leader_that_can_skip_the_assignment_is_told_that_it_leads() -> None:
    m = Machine()
    stable_statics(m)
    back = m.replies[
        m.join(instance_id="a", protocols=subscription(("t",), -1), may_skip_assignment=True)
    ]
    assert back.skip_assignment
    assert back.leader == back.member_id
    assert {row.group_instance_id for row in back.members} == {"a", "b"}
    other = m.replies[
        m.join(instance_id="b", protocols=subscription(("t",), -1), may_skip_assignment=True)
    ]
    assert (other.skip_assignment, other.leader, other.members) == (False, back.member_id, ())
    assert m.group.state is GroupState.STABLE


def test_a_member_id_handed_out_outlives_a_rebalance_that_did_not_wait_for_it() -> None:
    m = Machine()
    leader, follower = m.stable_pair()
    again = m.join(leader)
    for _ in range(REBALANCE_MS // 5_000 - 1):
        m.pass_ms(5_000)
        m.heartbeat(follower, 2)
    m.join(needs_known_id=True, fresh_id="x")
    assert again not in m.replies
    m.pass_ms(5_000)
    assert m.replies[again].generation_id == 3
    joining = m.join("x")
    m.join(leader)
    assert m.replies[joining].generation_id == 4


def test_a_successor_knows_the_stable_generation() -> None:
    m = Machine()
    leader, follower = m.stable_pair()
    m.join()  # a rebalance that the successor never hears of
    m.restart()
    assert m.heartbeat(leader, 2) == ErrorCode.NONE
    assert m.replies[m.sync(follower, 2)].assignment == b"two"
    m.pass_ms(SESSION_MS)  # nobody came: sessions ran from the load on
    assert m.group.state is GroupState.EMPTY


def test_a_refused_append_leaves_the_others_parked() -> None:
    m = Machine()
    leader, follower = m.stable_pair()
    m.join(leader)
    m.join(follower)
    parked = m.sync(follower, 3)
    m.refuse_appends = True
    lost = m.sync(leader, 3, **{follower: b"x"})
    assert not {lost, parked} & m.replies.keys()
    assert m.group.state is GroupState.COMPLETING
    m.refuse_appends = False
    m.sync(leader, 3, **{follower: b"y"})
    assert m.replies[parked].assignment == b"y"


def test_an_empty_generation_is_written_as_soon_as_appends_work() -> None:
    m = Machine()
    leader, follower = m.stable_pair()
    m.refuse_appends = True
    m.leave(leader)
    m.leave(follower)
    assert m.group.state is GroupState.PREPARING
    m.refuse_appends = False
    m.pass_ms(1_000)
    assert m.group.state is GroupState.EMPTY


def test_every_state_and_event() -> None:
    for state in GroupState:
        for event in GroupEvent:
            if (state, event) in TRANSITIONS:
                assert next_state("g", state, event) is TRANSITIONS[state, event]
            else:
                with pytest.raises(GroupTransitionError, match=state.value):
                    next_state("g", state, event)
