"""Groups that pass from the classic to the consumer protocol and back (KIP-848)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headwater.errors import ErrorCode
from headwater.wire.apis.k13_leave_group import MemberIdentity
from headwater.wire.apis.k14_sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from headwater.wire.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from headwater.wire.schema import encode
from headwater_broker.coordinator.group.classic.group import Group
from headwater_broker.coordinator.group.classic.rebalance import MemberJoin
from headwater_broker.coordinator.group.consumer.classic_protocol_data import read_assignment
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from unit.coordinator.consumer_group_machine import (
    GROUP,
    INTERVAL_MS,
    A,
    Client,
    ConsumerMachine,
    numbers,
)

OLD_SESSION_MS = 10_000


def subscription(*owned: int, topics: tuple[str, ...] = ("a",)) -> bytes:
    rows = (TopicPartition(topic="a", partitions=owned),) if owned else ()
    body = ConsumerProtocolSubscription(topics=topics, owned_partitions=rows)
    return b"\x00\x01" + encode(body, 1)


def assignment(*partitions: int, user_data: bytes | None = None) -> bytes:
    rows = (TopicPartition(topic="a", partitions=partitions),)
    body = ConsumerProtocolAssignment(assigned_partitions=rows, user_data=user_data)
    return b"\x00\x01" + encode(body, 1)


class Old:
    """A consumer of the classic protocol that gives up only what it must."""

    def __init__(self, m: ConsumerMachine, member_id: str = "", instance: str | None = None):
        self.m, self.member_id, self.instance = m, member_id, instance
        self.generation = 0
        self.owned: tuple[int, ...] = ()

    def join(self, **changes: Any) -> int:
        ask = MemberJoin(
            group_id=GROUP,
            member_id=self.member_id,
            instance_id=self.instance,
            client_id="c",
            client_host="/h",
            session_timeout_ms=OLD_SESSION_MS,
            rebalance_timeout_ms=60_000,
            protocol_type="consumer",
            protocols=(("cooperative-sticky", subscription(*self.owned)),),
            fresh_id=changes.pop("fresh_id", "made"),
            needs_known_id=changes.pop("needs_known_id", False),
        )
        ask = replace(ask, **changes)
        return self.m.run(lambda now, t: self.m.shard.join(ask, now, t))

    def joined(self, token: int) -> None:
        reply = self.m.replies[token]
        assert reply.error_code == 0, reply
        self.member_id, self.generation = reply.member_id, reply.generation_id

    def sync(self, protocol: str = "cooperative-sticky", **assignments: bytes) -> Any:
        ask = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name=protocol,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=name, assignment=data)
                for name, data in assignments.items()
            ),
        )
        token = self.m.run(lambda now, t: self.m.shard.sync(ask, now, t))
        reply = self.m.replies.get(token)
        if reply is not None and not isinstance(reply, ErrorCode):
            rows = read_assignment(bytes(reply.assignment)).assigned_partitions
            self.owned = tuple(p for row in rows for p in row.partitions)
        return reply

    def heartbeat(self) -> Any:
        return self.m.ask(
            lambda now, t: self.m.shard.heartbeat(
                GROUP, self.member_id, self.instance, self.generation, now, t
            )
        )

    def step(self) -> None:
        """What a client does with its heartbeat's answer."""
        if self.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS:
            self.joined(self.join())
            self.sync()

    def leave(self) -> Any:
        rows = (MemberIdentity(member_id=self.member_id, group_instance_id=self.instance),)
        return self.m.ask(lambda now, t: self.m.shard.leave(GROUP, rows, now, t))


def classic_pair(m: ConsumerMachine) -> tuple[Old, Old]:
    """A stable classic group of two, in generation 2."""
    one, two = Old(m), Old(m)
    one.joined(one.join(fresh_id="one"))
    one.sync(one=assignment(0, 1, 2, 3))
    waiting, again = two.join(fresh_id="two"), one.join()
    one.joined(again)
    two.joined(waiting)
    two.sync()
    one.sync(one=assignment(0, 1), two=assignment(2, 3))
    two.owned = (2, 3)
    return one, two


def test_a_modern_member_joins_a_classic_group_whose_members_go_on() -> None:
    m = ConsumerMachine()
    one, two = classic_pair(m)
    assert m.commit("one", 2) == [ErrorCode.NONE]
    before = len(m.batches)
    new = Client(m, "new")
    new.beat()
    assert len(m.batches) == before + 1, "one decision, one batch"
    assert set(m.group.members) == {"one", "two", "new"} and m.group.offsets
    assert numbers(m.member("two").assigned) == {1: [2, 3]} and m.member("two").epoch == 2
    m.restart()
    assert m.commit("two", 2, ("a", 2)) == [ErrorCode.NONE]
    for _ in range(8):
        m.pass_ms(INTERVAL_MS // 2)
        for client in (one, two):
            client.step()
        new.beat()
    assert m.group.state.value == "Stable"
    held = sorted([*one.owned, *two.owned, *new.owned[A]])
    assert held == [0, 1, 2, 3] and new.owned[A] and one.owned and two.owned
    assert one.generation == two.generation == new.epoch
    assert m.commit("one", 2, ("a", 9)) == [ErrorCode.ILLEGAL_GENERATION]
    m.restart()


def test_members_that_wait_for_a_rebalance_are_told_to_join_again() -> None:
    m = ConsumerMachine()
    one, two = classic_pair(m)
    waiting = one.join()
    Client(m, "new").beat()
    assert m.replies[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    one.joined(one.join())
    assert one.sync().error_code == 0 and set(one.owned) <= {0, 1}
    assert two.heartbeat() in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
    m.restart()


def test_the_last_modern_member_leaves_and_the_group_is_classic_again() -> None:
    m = ConsumerMachine()
    one, two = classic_pair(m)
    m.commit("one", 2)
    new = Client(m, "new")
    new.beat()
    for _ in range(6):
        m.pass_ms(INTERVAL_MS // 2)
        one.step()
        two.step()
        new.beat()
    epoch, before = m.group.epoch, len(m.batches)
    m.heartbeat("new", -1)
    assert len(m.batches) == before + 1
    assert isinstance(m.shard.groups[GROUP], Group) and m.classic.offsets
    assert m.classic.generation == epoch and set(m.classic.members) == {"one", "two"}
    m.pass_ms(1)
    assert one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    first, second = one.join(), two.join()
    one.joined(first)
    two.joined(second)
    assert one.generation == epoch + 1
    one.sync(one=assignment(0, 1), two=assignment(2, 3))
    two.sync()
    assert two.owned == (2, 3)
    m.restart()
    m.pass_ms(OLD_SESSION_MS)
    assert not m.classic.members, "their sessions go on"


def test_a_classic_member_that_does_not_join_again_in_time_is_out() -> None:
    m = ConsumerMachine()
    one, two = classic_pair(m)
    new = Client(m, "new")
    new.beat()
    for _ in range(61):
        m.pass_ms(1_000)
        if "one" in m.group.members:
            one.heartbeat()
        two.step()
        new.beat()
    assert "one" not in m.group.members and m.meters.fenced == {"rebalance": 1}


def test_a_classic_consumer_joins_a_group_of_modern_ones() -> None:
    m = ConsumerMachine()
    new = Client(m, "new")
    new.beat()
    old = Old(m)
    required = m.replies[old.join(needs_known_id=True, fresh_id="old")]
    assert required.error_code == ErrorCode.MEMBER_ID_REQUIRED
    old.member_id = required.member_id
    old.joined(old.join())
    old.sync()
    for _ in range(6):
        m.pass_ms(INTERVAL_MS // 2)
        old.step()
        new.beat()
    assert len(old.owned) == len(new.owned[A]) == 2
    [left] = old.leave()
    assert left.error_code == ErrorCode.NONE and set(m.group.members) == {"new"}
    m.restart()


def test_a_static_member_moves_to_the_newer_protocol_and_keeps_its_partitions() -> None:
    m = ConsumerMachine()
    one = Old(m, instance="i1")
    one.joined(one.join(fresh_id="one"))
    one.sync(one=assignment(0, 1, 2, 3))
    new = Client(m, "new", instance_id="i1")
    new.beat()
    assert numbers(new.owned) == {1: [0, 1, 2, 3]} and set(m.group.members) == {"new"}
    m.restart()


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_decides(policy: str) -> None:
    m = ConsumerMachine()
    m.config = replace(m.config, migration_policy=policy)
    m.shard = m.new_shard()
    classic_pair(m)
    assert m.join("new") == ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(m.shard.groups[GROUP], Group)


def test_without_the_way_back_a_group_stays_modern() -> None:
    m = ConsumerMachine()
    m.config = replace(m.config, migration_policy="upgrade")
    m.shard = m.new_shard()
    classic_pair(m)
    m.join("new")
    m.heartbeat("new", -1)
    assert isinstance(m.shard.groups[GROUP], ConsumerGroup) and len(m.group.members) == 2
    m.restart()


def test_what_cannot_be_carried_over_stays_classic() -> None:
    m = ConsumerMachine()
    one = Old(m)
    one.joined(one.join(protocols=(("mine", subscription()),), fresh_id="one"))
    one.sync("mine", one=assignment(0, user_data=b"mine"))
    assert m.join("new") == ErrorCode.GROUP_ID_NOT_FOUND
    sticky = ConsumerMachine()
    four = Old(sticky)
    four.joined(four.join(fresh_id="four"))
    four.sync(four=assignment(0, user_data=b"what it remembers"))
    assert sticky.join("new").error_code == 0
    other = ConsumerMachine()
    two = Old(other)
    two.joined(two.join(protocols=(("cooperative-sticky", b"x"),), fresh_id="two"))
    assert other.join("new") == ErrorCode.GROUP_ID_NOT_FOUND
    connect = ConsumerMachine()
    three = Old(connect)
    three.joined(three.join(protocol_type="connect", fresh_id="three"))
    assert connect.join("new") == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_whose_records_do_not_fit_one_batch_stays_classic_and_goes_on() -> None:
    m = ConsumerMachine(batch_max_bytes=65_600)
    one, two = classic_pair(m)
    waiting = two.join()
    before = len(m.records)
    assert Client(m, "new").beat() == ErrorCode.GROUP_ID_NOT_FOUND
    assert len(m.records) == before
    one.joined(one.join())
    two.joined(waiting)
    one.sync(one=assignment(0, 1), two=assignment(2, 3))
    two.sync()
    assert (two.owned, two.heartbeat()) == ((2, 3), ErrorCode.NONE)


def test_a_group_that_does_not_fit_one_record_stays_a_consumer_group() -> None:
    m = ConsumerMachine()
    one, two = classic_pair(m)
    new = Client(m, "new")
    new.beat()
    m.config = replace(m.config, batch_max_bytes=300)
    m.restart()
    m.heartbeat("new", -1)
    assert set(m.group.members) == {"one", "two"}
    for _ in range(4):
        m.pass_ms(INTERVAL_MS)
        one.step()
        two.step()
    assert sorted(one.owned + two.owned) == [0, 1, 2, 3]


def test_an_empty_consumer_group_becomes_a_classic_one() -> None:
    m = ConsumerMachine()
    Client(m, "new").beat()
    m.commit("new", 1)
    m.heartbeat("new", -1)
    one = Old(m)
    one.joined(one.join(fresh_id="one"))
    one.sync(one=assignment(0, 1, 2, 3))
    assert m.classic.offsets and one.owned == (0, 1, 2, 3)
    m.restart()


def test_classic_requests_that_are_wrong() -> None:
    m = ConsumerMachine()
    one, _ = classic_pair(m)
    Client(m, "new").beat()
    m.pass_ms(INTERVAL_MS)
    assert one.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert one.sync() == ErrorCode.REBALANCE_IN_PROGRESS
    one.generation = 7
    assert one.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    stranger = Old(m, "none")
    assert stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    wrong = Old(m)
    refused = m.replies[wrong.join(protocols=(("range", subscription()),))]
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    short = m.replies[wrong.join(session_timeout_ms=1)]
    assert short.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    modern = Old(m, "new")
    assert modern.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert modern.leave()[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
