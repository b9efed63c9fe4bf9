"""Share groups: joining, epochs, states that begin, targets, sessions, tools, loading."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock
from headwater.wire.apis import k76_share_group_heartbeat as k76
from headwater_broker.coordinator.common.shard import Decision, Decisions, Now, each
from headwater_broker.coordinator.group.classic.rebalance import MemberJoin
from headwater_broker.coordinator.group.collaborators import Collaborators
from headwater_broker.coordinator.group.config import GroupConfig
from headwater_broker.coordinator.group.consumer.heartbeat_request import Heartbeat
from headwater_broker.coordinator.group.consumer.meters import ConsumerGroupMeters
from headwater_broker.coordinator.group.consumer.subscriptions import KnownTopic
from headwater_broker.coordinator.group.offset_commands import OffsetCommit
from headwater_broker.coordinator.group.shard import GroupShard
from headwater_broker.coordinator.group.share.group import ShareGroup, TopicShare
from headwater_broker.coordinator.group.share.heartbeat import Beginning, ShareHeartbeat
from headwater_broker.metadata.group_settings import GroupSettings

T, U = UUID(int=1), UUID(int=2)


class SomeTopics:
    def __init__(self) -> None:
        self.rows = {"t": KnownTopic("t", T, 2), "u": KnownTopic("u", U, 1)}

    def by_name(self, name: str) -> KnownTopic | None:
        return self.rows.get(name)

    def by_id(self, topic_id: UUID) -> KnownTopic | None:
        return next((row for row in self.rows.values() if row.topic_id == topic_id), None)

    def racks(self, _topic_id: UUID) -> tuple[frozenset[str], ...]:
        return ()


class Driven:
    """A shard whose decisions are replayed at once."""

    def __init__(self) -> None:
        self.topics = SomeTopics()
        self.clock = ManualClock()
        self.config = GroupConfig(share_max_size=3)
        self.settings = GroupSettings()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.shard = self.fresh()
        self.beginning: Beginning | None = None

    def fresh(self) -> GroupShard:
        around = Collaborators(self.topics, ConsumerGroupMeters(), lambda _group: self.settings)
        return GroupShard(self.config, around)

    @property
    def now(self) -> Now:
        return Now(self.clock.now_ms(), self.clock.monotonic() * 1000)

    @property
    def group(self) -> ShareGroup:
        group = self.shard.shares.find("g")
        assert group is not None
        return group

    def replay(self, decisions: Decisions) -> Any:
        reply = None
        for decision in each(decisions):
            for record in decision.records:
                self.shard.replay(len(self.log), -1, -1, record.key, record.value)
                self.log.append((record.key, record.value))
            reply = self._reply(decision)
        return reply

    @staticmethod
    def _reply(decision: Decision) -> Any:
        found = [*decision.replies, *decision.confirmations]
        return found[0][1] if found else None

    def beat(self, member: str, epoch: int, *topics: str) -> k76.ShareGroupHeartbeatResponse:
        request = ShareHeartbeat(
            group_id="g",
            member_id=member,
            epoch=epoch,
            topics=frozenset(topics) if topics else None,
            client_id="c",
            client_host="/h",
        )
        reply = self.replay(self.shard.shares.heartbeat(request, self.now, 1))
        self.beginning = reply.beginning
        response: k76.ShareGroupHeartbeatResponse = reply.response
        return response

    def begin(self) -> None:
        """The persister has done what it was asked."""
        assert self.beginning is not None
        self.replay(self.shard.shares.begun("g", self.beginning.topics, self.now, 1))

    def settle(self, *members: str) -> None:
        """Heartbeats until nothing changes."""
        for _ in range(3):
            self.clock.advance(2_000)
            for member in members:
                self.beat(member, self.group.members[member].epoch)

    def assigned(self, member: str) -> dict[UUID, list[int]]:
        target = self.group.members[member].assigned
        return {topic: sorted(indexes) for topic, indexes in target.items()}

    def loaded(self) -> GroupShard:
        """A successor, by what compaction leaves."""
        shard = self.fresh()
        for at, (key, value) in enumerate(dict(self.log).items()):
            shard.replay(at, -1, -1, key, value)
        shard.loaded(self.now)
        return shard


def refused(code: ErrorCode, driven: Driven, *args: Any) -> None:
    with pytest.raises(KafkaError) as caught:
        driven.beat(*args)
    assert caught.value.code is code, caught.value


def test_partitions_are_assigned_once_their_states_have_begun() -> None:
    driven = Driven()
    first = driven.beat("a", 0, "t")
    assert (first.member_epoch, first.assignment) == (1, k76.Assignment(topic_partitions=()))
    assert first.heartbeat_interval_ms == 500
    assert driven.beginning == Beginning("g", 1, {T: TopicShare("t", frozenset({0, 1}))}, {})
    driven.begin()
    second = driven.beat("a", 1)
    assert second.member_epoch == 2
    rows = (k76.TopicPartitions(topic_id=T, partitions=(0, 1)),)
    assert second.assignment == k76.Assignment(topic_partitions=rows)
    records = len(driven.log)
    third = driven.beat("a", 2)
    assert (third.assignment, third.heartbeat_interval_ms) == (None, 1_000)
    assert len(driven.log) == records  # a steady member writes nothing


def test_states_are_asked_for_again_after_a_while() -> None:
    driven = Driven()
    driven.beat("a", 0, "t")
    driven.beat("a", 1)
    assert driven.beginning is not None  # the group was not stored when it was asked first
    driven.beat("a", 1)
    assert driven.beginning is None
    driven.clock.advance(30_000)
    driven.beat("a", 1)
    assert driven.beginning is not None


def test_members_share_partitions() -> None:
    driven = Driven()
    for member in "abc":
        driven.beat(member, 0, "t")
        if driven.beginning:
            driven.begin()
    driven.settle("a", "b", "c")
    counts = [len(driven.assigned(m)[T]) for m in "abc"]
    assert counts == [1, 1, 1]
    assert {i for m in "abc" for i in driven.assigned(m)[T]} == {0, 1}
    refused(ErrorCode.GROUP_MAX_SIZE_REACHED, driven, "d", 0, "t")


def test_targets_keep_their_interval() -> None:
    driven = Driven()
    driven.beat("a", 0, "t")
    driven.begin()
    driven.beat("a", 1)
    target = driven.group.target_epoch
    reply = driven.beat("b", 0, "t")
    assert (reply.member_epoch, driven.group.target_epoch) == (target, target)
    assert reply.heartbeat_interval_ms == 500
    driven.clock.advance(1_000)
    assert driven.beat("b", target).member_epoch == target + 1
    assert driven.assigned("b") == {T: [1]}
    assert driven.beat("a", target).assignment is not None


def test_epochs_fence() -> None:
    driven = Driven()
    refused(ErrorCode.GROUP_ID_NOT_FOUND, driven, "a", 3)
    driven.beat("a", 0, "t")
    driven.begin()
    refused(ErrorCode.UNKNOWN_MEMBER_ID, driven, "b", 1)
    driven.beat("a", 1)
    driven.beat("b", 0, "t")
    driven.settle("a", "b")
    epoch, previous = driven.group.members["a"].epoch, driven.group.members["a"].previous_epoch
    assert previous < epoch
    refused(ErrorCode.FENCED_MEMBER_EPOCH, driven, "a", epoch + 1)
    refused(ErrorCode.FENCED_MEMBER_EPOCH, driven, "a", previous - 1 or 99)
    lost = driven.beat("a", previous)  # its reply was lost
    assert (lost.member_epoch, lost.assignment is not None) == (epoch, True)
    assert driven.beat("a", 0, "t").member_epoch == epoch


@pytest.mark.parametrize(
    "fields",
    [
        {"member_id": ""},
        {"group_id": ""},
        {"rack_id": ""},
        {"epoch": -2},
        {"topics": None},
        {"topics": frozenset()},
    ],
)
def test_bad_requests(fields: dict[str, Any]) -> None:
    good = ShareHeartbeat(group_id="g", member_id="a", epoch=0, topics=frozenset({"t"}))
    with pytest.raises(KafkaError) as caught:
        Driven().shard.shares.heartbeat(replace(good, **fields), Now(0, 0.0), 1)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_member_leaves_and_the_others_take_over() -> None:
    driven = Driven()
    for member in "ab":
        driven.beat(member, 0, "t")
        if driven.beginning:
            driven.begin()
    driven.settle("a", "b")
    assert driven.beat("a", -1).member_epoch == -1
    assert list(driven.group.members) == ["b"]
    driven.settle("b")
    assert driven.assigned("b") == {T: [0, 1]}
    driven.beat("b", -1)
    assert driven.group.state.value == "Empty"
    refused(ErrorCode.UNKNOWN_MEMBER_ID, driven, "b", -1)


def test_sessions_end() -> None:
    driven = Driven()
    driven.beat("a", 0, "t")
    driven.clock.advance(30_000)
    driven.beat("b", 0, "t")
    driven.clock.advance(15_000)
    driven.replay(driven.shard.tick(driven.now))
    assert list(driven.group.members) == ["b"]
    driven.beat("b", driven.group.members["b"].epoch)
    driven.clock.advance(44_999)
    driven.replay(driven.shard.tick(driven.now))
    assert list(driven.group.members) == ["b"]
    driven.clock.advance(1)
    driven.replay(driven.shard.tick(driven.now))
    assert driven.group.is_empty


def test_a_topic_that_grows_is_begun() -> None:
    driven = Driven()
    driven.beat("a", 0, "t", "gone")
    driven.begin()
    driven.settle("a")
    driven.topics.rows["t"] = KnownTopic("t", T, 3)
    driven.shard.shares.topics_changed(frozenset({"t"}))
    driven.beat("a", driven.group.members["a"].epoch)
    assert driven.beginning is not None
    assert driven.beginning.topics == {T: TopicShare("t", frozenset({2}))}
    driven.begin()
    driven.settle("a")
    assert driven.assigned("a") == {T: [0, 1, 2]}


def test_a_deleted_topic_is_taken_away() -> None:
    driven = Driven()
    driven.beat("a", 0, "t", "u")
    driven.begin()
    driven.settle("a")
    del driven.topics.rows["t"]
    driven.shard.shares.topics_changed(frozenset({"t"}))
    driven.replay(driven.shard.topics_deleted(frozenset({"t"}), driven.now, 1))
    assert driven.group.shares.topics() == {U: "u"}
    driven.settle("a")
    assert driven.assigned("a") == {U: [0]}


def test_a_successor_goes_on() -> None:
    driven = Driven()
    for member in "ab":
        driven.beat(member, 0, "t")
        if driven.beginning:
            driven.begin()
    driven.settle("a", "b")
    driven.beat("a", -1)
    driven.beat("c", 0, "u")
    before = driven.group
    driven.shard = driven.loaded()
    after = driven.group
    for name in ("epoch", "metadata_hash", "members", "target_epoch", "targets", "shares"):
        assert getattr(after, name) == getattr(before, name), name
    driven.clock.advance(45_000)
    driven.replay(driven.shard.tick(driven.now))
    assert driven.group.is_empty


def test_a_group_id_has_one_kind() -> None:
    driven = Driven()
    driven.beat("a", 0, "t")
    row = driven.replay(driven.shard.administration.describe("g", driven.now, 1))
    assert row.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    before = driven.group
    join = MemberJoin(
        group_id="g",
        member_id="",
        instance_id=None,
        client_id="c",
        client_host="/h",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=(("range", b""),),
        fresh_id="new",
        needs_known_id=False,
    )
    joined = driven.replay(driven.shard.join(join, driven.now, 1))
    assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    hasty = replace(join, session_timeout_ms=1)
    joined = driven.replay(driven.shard.join(hasty, driven.now, 1))
    assert joined.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    modern = Heartbeat(
        group_id="g", member_id="x", epoch=0, topics=frozenset({"t"}), owned={},
        rebalance_timeout_ms=10_000,
    )  # fmt: skip
    with pytest.raises(KafkaError) as caught:
        driven.shard.consumers.heartbeat(modern, driven.now, 1)
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    commit = OffsetCommit(
        group_id="g", generation=3, member_id="x", instance_id=None, retention_ms=-1, rows=(),
        version=8,
    )  # fmt: skip
    for call in (
        lambda: driven.shard.offsets.commit(commit, driven.now, 1),
        lambda: driven.shard.offsets.delete_offsets("g", [("t", 0)], driven.now, 1),
    ):
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND, "it commits no offsets"
    assert driven.group is before
    listed = driven.replay(
        driven.shard.administration.list_groups(frozenset(), frozenset({"share"}), driven.now, 1)
    )
    assert [(r.group_id, r.group_type, r.group_state, r.protocol_type) for r in listed] == [
        ("g", "share", "Stable", "share")
    ]


def test_described_as_it_is() -> None:
    driven = Driven()
    driven.beat("a", 0, "t")
    driven.begin()
    driven.beat("a", 1)
    row = driven.replay(driven.shard.shares.describe("g", driven.now, 1))
    assert (row.group_state, row.group_epoch, row.assignment_epoch) == ("Stable", 2, 2)
    (member,) = row.members
    assert member.subscribed_topic_names == ("t",)
    assert member.assignment.topic_partitions[0].partitions == (0, 1)
    other = driven.replay(driven.shard.shares.describe("h", driven.now, 1))
    assert (other.error_code, other.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")


def test_offsets_that_are_altered_make_the_group() -> None:
    driven = Driven()
    offsets = driven.shard.shares.offsets
    assert driven.replay(offsets.begun("g", driven.now, 1)) == []
    driven.replay(offsets.alter("g", [("nix", 0, 5)], driven.now, 1))
    assert driven.shard.shares.find("g") is None
    with pytest.raises(KafkaError) as caught:
        offsets.delete("g", ["t"], driven.now, 1)
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    change = driven.replay(offsets.alter("g", [("t", 0, 5)], driven.now, 1))
    driven.replay(driven.shard.shares.begun("g", change.topics, driven.now, 1))
    assert driven.replay(offsets.begun("g", driven.now, 1)) == [(T, 0)]
    assert driven.group.is_empty
    assert driven.loaded().groups.keys() == {"g"}


def test_offsets_are_altered_and_deleted_of_empty_groups() -> None:
    driven = Driven()
    driven.beat("a", 0, "t")
    driven.begin()
    offsets = driven.shard.shares.offsets
    for call in (
        lambda: offsets.alter("g", [("t", 0, 5)], driven.now, 1),
        lambda: offsets.delete("g", ["t"], driven.now, 1),
        lambda: offsets.delete_all("g", driven.now, 1),
    ):
        with pytest.raises(KafkaError) as caught:
            call()
        assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
    driven.beat("a", -1)
    epoch = driven.group.epoch
    change = driven.replay(
        offsets.alter("g", [("t", 0, 5), ("t", 9, 5), ("x", 0, 1), ("u", 0, -4)], driven.now, 1)
    )
    assert [(s.topic.name, s.partition, s.start_offset) for s in change.starts] == [("t", 0, 5)]
    assert set(change.refused) == {("t", 9), ("x", 0), ("u", 0)}
    assert change.state_epoch == driven.group.epoch == epoch + 1
    assert driven.group.shares.initializing == {T: TopicShare("t", frozenset({0}))}
    driven.replay(driven.shard.shares.begun("g", change.topics, driven.now, 1))
    assert driven.group.shares.initialized == {T: TopicShare("t", frozenset({0, 1}))}
    deletion = driven.replay(offsets.delete("g", ["t", "u", "x"], driven.now, 1))
    assert (deletion.partitions, deletion.unknown) == ([(T, 0), (T, 1)], ["x"])
    assert driven.group.shares.deleting == {T: "t"}
    again = driven.replay(offsets.delete_all("g", driven.now, 1))  # after a failure
    assert again.partitions == [(T, 0), (T, 1)]
    driven.replay(offsets.deleted("g", [T], driven.now, 1))
    assert driven.group.shares.topics() == {}
    codes = driven.replay(driven.shard.administration.delete_groups(("g",), driven.now, 1))
    assert codes == {"g": ErrorCode.NONE}
    assert driven.shard.shares.find("g") is None
    assert driven.loaded().groups == {}
