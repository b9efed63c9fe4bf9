"""Consumer groups of KIP-848, by lists of events."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.errors import ErrorCode
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.consumer.states import MemberState
from headwater_broker.metadata.group_settings import GroupSettings
from unit.coordinator.consumer_group_machine import (
    GROUP,
    INTERVAL_MS,
    SESSION_MS,
    A,
    Client,
    ConsumerMachine,
    World,
    numbers,
    settle,
)


def pair() -> tuple[ConsumerMachine, Client, Client]:
    """Two members of a settled group."""
    m = ConsumerMachine()
    one, two = Client(m, "one"), Client(m, "two")
    settle_after_join(m, one, two)
    return m, one, two


def settle_after_join(m: ConsumerMachine, *clients: Client) -> None:
    for client in clients:
        client.beat()
    settle(m, clients)


def test_one_member_joins_and_has_everything_at_once() -> None:
    m = ConsumerMachine()
    reply = m.join("one")
    assert (reply.error_code, reply.member_id, reply.member_epoch) == (0, "one", 1)
    [row] = reply.assignment.topic_partitions
    assert (row.topic_id, row.partitions) == (A, (0, 1, 2, 3))
    assert m.group.state.value == "Stable" and len(m.batches) == 1, "one decision, one batch"
    m.restart()
    assert m.group.state.value == "Stable"


def test_a_second_member_gets_what_the_first_gives_up_and_not_before() -> None:
    m = ConsumerMachine()
    one, two = Client(m, "one"), Client(m, "two")
    one.beat()
    two.beat()
    assert numbers(two.owned) == {} and two.interval_ms <= 500
    m.pass_ms(INTERVAL_MS)
    two.beat()
    assert numbers(two.owned) == {} and m.member("two").state is MemberState.UNRELEASED
    reply = m.heartbeat("one", 1)
    assert [r.partitions for r in reply.assignment.topic_partitions] == [(0, 1)]
    assert reply.member_epoch == 1, "its epoch rises once it has given up"
    two.beat()
    assert numbers(two.owned) == {}, "they may still be in work"
    again = m.heartbeat("one", 1, owned=None)
    assert again.member_epoch == 1, "null is unchanged, not empty"
    done = m.heartbeat("one", 1, owned={A: frozenset({0, 1})})
    assert done.member_epoch == m.group.epoch
    two.beat()
    assert numbers(two.owned) == {1: [2, 3]}
    assert m.group.state.value == "Stable"
    m.restart()


def test_a_steady_member_writes_nothing() -> None:
    m, one, two = pair()
    before = len(m.records)
    for _ in range(5):
        assert one.beat().assignment is None and two.beat().member_epoch == m.group.epoch
        m.pass_ms(1_000)
    assert len(m.records) == before and one.interval_ms == 1_000


def test_a_hundred_joins_make_two_targets() -> None:
    m = ConsumerMachine(World(a=200))
    clients = [Client(m, f"m{number:03}") for number in range(100)]
    for client in clients:
        client.beat()
        m.pass_ms(3)
    m.pass_ms(INTERVAL_MS)
    assert m.meters.rebalances == 2
    assert settle(m, clients) <= 4
    assert {len(c.owned[A]) for c in clients} == {2}
    assert m.meters.settled == 2 and m.meters.settling_max_ms <= 3_000


@pytest.mark.parametrize(
    ("epoch", "owned", "code"),
    [
        (9, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, None, ErrorCode.FENCED_MEMBER_EPOCH),
        (1, {A: frozenset({0, 1, 2, 3})}, ErrorCode.FENCED_MEMBER_EPOCH),
    ],
    ids=["greater", "smaller without its partitions", "smaller with others' partitions"],
)
def test_a_zombie_is_fenced(epoch: int, owned: Any, code: ErrorCode) -> None:
    m, one, _ = pair()
    assert one.epoch > 1
    assert m.heartbeat("one", epoch, owned=owned) == code
    assert m.meters.refused_epochs == 1


def test_a_lost_reply_is_repeated() -> None:
    m = ConsumerMachine()
    one = Client(m, "one")
    one.beat()
    m.topic_changed("a", 6)
    m.pass_ms(INTERVAL_MS)
    m.heartbeat("one", 1)  # the reply is lost
    assert m.member("one").epoch == 2
    full: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topics": frozenset({"a"})}
    reply = m.heartbeat("one", 1, owned=one.owned, **full)
    assert reply.member_epoch == 2
    assert [r.partitions for r in reply.assignment.topic_partitions] == [(0, 1, 2, 3, 4, 5)]


def test_a_member_that_is_not_known_is_told_so() -> None:
    m, _, _ = pair()
    assert m.heartbeat("none", 5) == ErrorCode.UNKNOWN_MEMBER_ID
    assert m.heartbeat("none", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    other = ConsumerMachine()
    assert other.heartbeat("none", 5) == ErrorCode.GROUP_ID_NOT_FOUND
    assert other.heartbeat("none", -1) == ErrorCode.GROUP_ID_NOT_FOUND


def test_who_leaves_gives_its_partitions_to_the_rest() -> None:
    m, one, two = pair()
    reply = m.heartbeat("two", -1)
    assert (reply.error_code, reply.member_epoch) == (0, -1)
    settle(m, (one,))
    assert numbers(one.owned) == {1: [0, 1, 2, 3]}
    assert m.heartbeat("two", two.epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    m.restart()
    m.heartbeat("one", -1)
    assert m.group.state.value == "Empty" and not m.group.targets and not m.group.holders
    m.restart()


def test_who_is_silent_is_out_after_its_session() -> None:
    m, one, two = pair()
    m.pass_ms(SESSION_MS - 1_000)
    one.beat()
    m.pass_ms(1_000)
    assert list(m.group.members) == ["one"] and m.meters.fenced == {"session": 1}
    settle(m, (one,))
    assert numbers(one.owned) == {1: [0, 1, 2, 3]}
    assert two.beat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_sessions_that_end_together_are_one_decision() -> None:
    m, _, _ = pair()
    before, epoch = len(m.batches), m.group.epoch
    m.pass_ms(SESSION_MS)
    assert m.group.state.value == "Empty"
    assert m.group.epoch > epoch and len(m.batches) - before <= 2
    m.restart()


def test_who_does_not_give_up_in_time_is_out() -> None:
    m = ConsumerMachine()
    one, two = Client(m, "one"), Client(m, "two")
    one.beat()
    two.beat()
    m.pass_ms(INTERVAL_MS)
    m.heartbeat("one", 1)  # it is told, and goes on with its work
    for _ in range(59):
        m.pass_ms(1_000)
        assert m.heartbeat("one", 1).member_epoch == 1
        two.beat()
    m.pass_ms(1_000)
    assert m.heartbeat("one", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert m.meters.fenced == {"rebalance": 1}
    settle(m, (two,))
    assert numbers(two.owned) == {1: [0, 1, 2, 3]}


def test_a_successor_starts_sessions_and_the_time_to_give_up_anew() -> None:
    m = ConsumerMachine()
    one, two = Client(m, "one"), Client(m, "two")
    one.beat()
    two.beat()
    m.pass_ms(INTERVAL_MS)
    m.heartbeat("one", 1)
    m.pass_ms(30_000)
    m.restart()
    for _ in range(59):
        m.pass_ms(1_000)
        m.heartbeat("one", 1)
        two.beat()
    assert "one" in m.group.members
    m.pass_ms(1_000)
    assert "one" not in m.group.members
    m.restart()
    m.pass_ms(SESSION_MS)
    assert not m.group.members


def test_a_successor_computes_the_target_that_is_due() -> None:
    m = ConsumerMachine()
    Client(m, "one").beat()
    Client(m, "two").beat()
    assert m.group.state.value == "Assigning"
    m.restart()
    m.pass_ms(INTERVAL_MS)
    assert m.group.state.value == "Reconciling"


def test_more_partitions_raise_the_epoch_once() -> None:
    m, one, two = pair()
    epoch = m.group.epoch
    m.topic_changed("a", 6)
    settle_after_join(m, one, two)
    assert m.group.epoch == epoch + 1
    assert sorted([*one.owned[A], *two.owned[A]]) == [0, 1, 2, 3, 4, 5]
    m.topic_changed("a", 6)
    one.beat()
    assert m.group.epoch == epoch + 1 and not m.group.needs_refresh


def test_a_deleted_topic_is_taken_away_and_its_successor_is_another() -> None:
    m, one, two = pair()
    m.topic_changed("a", None)
    settle_after_join(m, one, two)
    assert one.owned == {} and two.owned == {} and not m.group.holders
    m.topic_changed("a", 2, topic_id=World(b=1).topics["b"].topic_id)
    settle_after_join(m, one, two)
    assert numbers(one.owned) == {2: [0]} and numbers(two.owned) == {2: [1]}
    m.restart()


def test_a_changed_subscription_rebalances() -> None:
    m = ConsumerMachine(World(a=2, b=2))
    one, two = Client(m, "one"), Client(m, "two")
    settle_after_join(m, one, two)
    reply = m.heartbeat("one", one.epoch, topics=frozenset({"a", "b"}))
    one.take(reply)
    settle(m, (one, two))
    assert numbers(one.owned)[2] == [0, 1]
    held = {topic.int: sorted(rows) for topic, rows in m.group.holders.items()}
    assert held == {1: [0, 1], 2: [0, 1]}


def test_the_assignment_is_told_when_it_changed_or_when_asked_for() -> None:
    m, one, _ = pair()
    assert one.beat().assignment is None
    full: dict[str, Any] = {
        "rebalance_timeout_ms": 60_000, "topics": frozenset({"a"}), "owned": one.owned,
    }  # fmt: skip
    assert m.heartbeat("one", one.epoch, **full).assignment is not None
    assert m.heartbeat("one", one.epoch, owned=one.owned).assignment is None


def test_a_member_may_join_anew_with_nothing_in_its_hands() -> None:
    m, one, two = pair()
    epoch = m.group.epoch
    fresh = one.again()
    fresh.beat()
    assert fresh.epoch == epoch and fresh.owned == one.owned
    assert m.group.epoch == epoch and two.beat().member_epoch == epoch


@pytest.mark.parametrize(
    ("member_id", "epoch", "more"),
    [
        ("m", -3, {}),
        ("", 1, {}),
        ("", 0, {"rebalance_timeout_ms": 1, "topics": frozenset(), "owned": {}}),
        ("m", 0, {"topics": frozenset(), "owned": {}}),
        ("m", 0, {"rebalance_timeout_ms": 1, "topics": frozenset()}),
        ("m", 0, {"rebalance_timeout_ms": 1, "topics": frozenset(), "owned": {A: frozenset({1})}}),
        ("m", 0, {"rebalance_timeout_ms": 1, "owned": {}}),
        ("m", 1, {"instance_id": ""}),
        ("m", 1, {"rack_id": ""}),
        ("m", -2, {}),
    ],
    ids=str,
)
def test_requests_that_are_wrong_by_themselves(member_id: str, epoch: int, more: Any) -> None:
    assert ConsumerMachine().heartbeat(member_id, epoch, **more) == ErrorCode.INVALID_REQUEST


def test_an_assignor_that_is_not_there_and_a_group_that_is_full() -> None:
    m = ConsumerMachine(consumer_max_size=1)
    assert m.join("one", assignor="fair") == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert m.join("one", assignor="range").error_code == 0
    assert m.join("two") == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert m.join("one").error_code == 0


def test_before_version_1_the_coordinator_makes_the_member_id() -> None:
    m = ConsumerMachine()
    reply = m.join("", names_itself=False, fresh_id="made")
    assert reply.member_id == "made" and list(m.group.members) == ["made"]


# -- static members


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    m = ConsumerMachine()
    one, two = Client(m, "one", instance_id="i1"), Client(m, "two")
    settle_after_join(m, one, two)
    epoch = m.group.epoch
    assert m.heartbeat("one", -2, instance_id="i1").member_epoch == -2
    m.restart()
    back = Client(m, "new", instance_id="i1")
    back.beat()
    assert back.epoch == epoch == m.group.epoch and back.owned == one.owned
    assert set(m.group.members) == {"new", "two"} and m.meters.rebalances == 2
    m.restart()
    assert m.heartbeat("one", epoch, instance_id="i1") == ErrorCode.FENCED_INSTANCE_ID
    m.pass_ms(SESSION_MS - 1)
    assert "new" in m.group.members, "the timer of the old id is not the new one's"


def test_a_static_member_that_does_not_come_back_is_out() -> None:
    m = ConsumerMachine()
    one, two = Client(m, "one", instance_id="i1"), Client(m, "two")
    settle_after_join(m, one, two)
    m.heartbeat("one", -2, instance_id="i1")
    for _ in range(SESSION_MS // 1_000):
        two.beat()
        m.pass_ms(1_000)
    settle(m, (two,))
    assert numbers(two.owned) == {1: [0, 1, 2, 3]}


def test_an_instance_id_that_is_in_use_is_not_given_away() -> None:
    m = ConsumerMachine()
    m.join("one", instance_id="i1")
    assert m.join("two", instance_id="i1") == ErrorCode.UNRELEASED_INSTANCE_ID
    assert m.join("one", instance_id="i1").error_code == 0, "its first reply was lost"
    assert m.heartbeat("one", 1, instance_id="i2") == ErrorCode.UNKNOWN_MEMBER_ID
    assert m.heartbeat("one", -2, instance_id="i2") == ErrorCode.UNKNOWN_MEMBER_ID
    assert m.heartbeat("two", -1, instance_id="i1") == ErrorCode.FENCED_INSTANCE_ID


# -- commits


def test_commits_are_checked_by_epoch() -> None:
    m, one, _ = pair()
    assert m.commit("one", one.epoch) == [ErrorCode.NONE]
    assert m.commit("one", one.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert m.commit("one", -1) == ErrorCode.STALE_MEMBER_EPOCH
    assert m.commit("none", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert m.commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert m.commit("one", one.epoch, version=8) == ErrorCode.UNSUPPORTED_VERSION
    m.heartbeat("one", -1)
    m.heartbeat("two", -1)
    assert m.commit("", -1) == [ErrorCode.NONE], "a tool may, while the group is empty"
    m.restart()


def test_an_older_epoch_commits_what_was_assigned_by_then() -> None:
    m = ConsumerMachine()
    one = Client(m, "one")
    one.beat()
    m.topic_changed("a", 6)
    m.pass_ms(INTERVAL_MS)
    m.heartbeat("one", 1)
    assert m.member("one").epoch == 2
    stale = ErrorCode.STALE_MEMBER_EPOCH
    assert m.commit("one", 1, ("a", 0), ("a", 5)) == [ErrorCode.NONE, stale]
    m.restart()
    assert m.commit("one", 1, ("a", 3), ("a", 4)) == [ErrorCode.NONE, stale]
    assert m.commit("one", 0, ("a", 3)) == [stale]


def test_a_revoked_partition_is_committed_until_it_is_given_up() -> None:
    m = ConsumerMachine()
    one, two = Client(m, "one"), Client(m, "two")
    one.beat()
    two.beat()
    m.pass_ms(INTERVAL_MS)
    m.heartbeat("one", 1)
    assert m.commit("one", 1, ("a", 3)) == [ErrorCode.NONE]
    m.heartbeat("one", 1, owned={A: frozenset({0, 1})})
    assert m.commit("one", 1, ("a", 0), ("a", 3)) == [0, ErrorCode.STALE_MEMBER_EPOCH]


def test_fetches_are_checked_by_epoch() -> None:
    m, one, _ = pair()

    def fetch(member_id: str | None, epoch: int) -> Any:
        return m.ask(
            lambda now, t: m.shard.offsets.fetch(
                GROUP, (("a", 0),), now, t, member_id=member_id, member_epoch=epoch
            )
        )

    assert fetch("one", one.epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch("none", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetch(None, -1)[("a", 0)].offset == -1
    assert fetch("one", one.epoch)[("a", 0)].offset == -1


# -- groups of another kind, deletion, expiry


def test_tools_see_delete_and_list_the_group() -> None:
    m, one, _ = pair()
    tools = m.shard.administration
    row = m.ask(lambda now, t: tools.describe_consumer_group(GROUP, now, t))
    assert (row.group_state, row.group_epoch, row.assignment_epoch) == ("Stable", 2, 2)
    assert [(x.member_id, x.member_epoch, x.member_type) for x in row.members] == [
        ("one", 2, 1), ("two", 2, 1),
    ]  # fmt: skip
    [held] = row.members[0].assignment.topic_partitions
    assert (held.topic_name, frozenset(held.partitions)) == ("a", one.owned[A])
    assert row.members[0].assignment == row.members[0].target_assignment
    classic = m.ask(lambda now, t: tools.describe(GROUP, now, t))
    assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND and classic.group_state == "Dead"
    none = m.ask(lambda now, t: tools.describe_consumer_group("none", now, t))
    assert none.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    everything: frozenset[str] = frozenset()
    [listed] = m.ask(lambda now, t: tools.list_groups(everything, everything, now, t))
    assert (listed.group_type, listed.group_state) == ("consumer", "Stable")
    assert m.ask(lambda now, t: tools.list_groups(everything, frozenset({"classic"}), now, t)) == []
    deleted = m.ask(lambda now, t: tools.delete_groups((GROUP,), now, t))
    assert deleted == {GROUP: ErrorCode.NON_EMPTY_GROUP}
    m.heartbeat("one", -1)
    m.heartbeat("two", -1)
    deleted = m.ask(lambda now, t: tools.delete_groups((GROUP,), now, t))
    assert deleted == {GROUP: ErrorCode.NONE} and m.shard.groups == {}
    m.restart()
    assert m.shard.groups == {}


def test_offsets_of_an_empty_group_expire_and_then_the_group() -> None:
    hour = 3_600_000
    m = ConsumerMachine(offsets_retention_ms=24 * hour, offsets_check_interval_ms=hour)
    m.restart()
    one = Client(m, "one")
    one.beat()
    assert m.commit("one", 1) == [ErrorCode.NONE]
    for _ in range(30 * 3600 // 40):
        m.pass_ms(40_000)
        one.beat()
    assert m.group.offsets, "it has a member"
    m.heartbeat("one", -1)
    m.pass_ms(20 * hour)
    assert m.group.offsets, "its time counts from when it was empty"
    m.pass_ms(6 * hour)
    assert m.shard.groups == {}
    m.restart()


def test_an_empty_classic_group_becomes_a_consumer_group_with_its_offsets() -> None:
    m = ConsumerMachine()
    assert m.commit("", -1) == [ErrorCode.NONE]
    assert m.classic.offsets
    m.join("one")
    assert list(m.group.offsets) == [("a", 0)]
    m.restart()
    m.heartbeat("one", -1)
    deleted = m.ask(lambda now, t: m.shard.offsets.delete_offsets(GROUP, (("a", 0),), now, t))
    assert deleted == {("a", 0): ErrorCode.NONE} and isinstance(m.group, ConsumerGroup)


def test_offsets_of_a_subscribed_topic_are_not_deleted() -> None:
    m, one, _ = pair()
    m.commit("one", one.epoch)
    deleted = m.ask(lambda now, t: m.shard.offsets.delete_offsets(GROUP, (("a", 0),), now, t))
    assert deleted == {("a", 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}


def test_group_configs_win() -> None:
    m = ConsumerMachine()
    m.settings = GroupSettings(
        consumer_session_timeout_ms=50_000,
        consumer_heartbeat_interval_ms=7_000,
        consumer_assignment_interval_ms=0,
    )
    one, two = Client(m, "one"), Client(m, "two")
    one.beat()
    assert one.interval_ms == 7_000
    two.beat()
    assert m.group.target_epoch == 2, "no interval: each change makes a target"
    m.pass_ms(49_999)
    assert len(m.group.members) == 2
    m.pass_ms(1)
    assert not m.group.members
