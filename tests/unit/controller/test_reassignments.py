"""Reassignments (KIP-455): two phases, replaced, cancelled, with brokers that are down."""

from __future__ import annotations

from uuid import UUID

import pytest

from headwater.errors import ErrorCode
from headwater_broker.controller import write_batches
from headwater_broker.controller.decisions import reassignments
from headwater_broker.controller.decisions.decision_builder import assignment_of
from headwater_broker.controller.events import (
    CreatePartitions,
    ElectLeaders,
    PartitionGrowth,
    Reassign,
    Tick,
)
from headwater_broker.metadata import znodes
from unit.controller.machine_world import World

NONE = ErrorCode.NONE


def test_reassignment_in_two_phases_survives_a_failover(world: World) -> None:
    world.create("t", (1, 2))
    target = {("t", 0): (1, 3)}
    world.ask(lambda token: Reassign(token, target))
    assert world.partition("t").replicas == (1, 3, 2)
    world.fail_over()
    partition = world.partition("t")
    assert (partition.adding, partition.removing) == ((3,), (2,))
    assert world.alter_isr(partition, (1, 2, 3)) == ErrorCode.NONE
    assert (partition.replicas, partition.isr, partition.adding) == ((1, 3), (1, 3), ())
    deleted = [(u.broker_id, s.partition) for u in world.updates for s in u.stops if s.delete]
    assert deleted == [(2, 0)]


def test_the_first_target_in_sync_leads_when_the_move_takes_the_leader(world: World) -> None:
    """The worked case of the statements (B2-188): [1, 2], led by 2, moves to [1, 3]."""
    world.create("t", (1, 2))
    world.down(1)
    world.up(1)
    assert world.alter_isr(world.partition("t"), (1, 2)) == NONE
    partition = world.partition("t")
    assert (partition.replicas, partition.leader) == ((1, 2), 2)
    epoch = partition.leader_epoch
    world.ask(lambda token: Reassign(token, {("t", 0): (1, 3)}))
    assert (partition.replicas, partition.leader) == ((1, 3, 2), 2)
    assert not any(s.delete for u in world.updates for s in u.stops)
    assert world.alter_isr(partition, (1, 2, 3)) == ErrorCode.NEW_LEADER_ELECTED
    assert (partition.replicas, partition.isr, partition.leader) == ((1, 3), (1, 3), 1)
    assert (partition.adding, partition.removing) == ((), ())
    assert partition.leader_epoch > epoch
    deleted = [(u.broker_id, s.partition) for u in world.updates for s in u.stops if s.delete]
    assert deleted == [(2, 0)]


def test_a_partition_that_never_led_may_lead_after_a_reassignment_and_a_failover(
    world: World,
) -> None:
    world.up(4)
    world.down(4)
    world.find("t", (4,))
    assert world.partition("t").leader == -1
    world.ask(lambda token: Reassign(token, {("t", 0): (3,)}))
    world.fail_over()
    assert (world.partition("t").leader, world.partition("t").isr) == (3, (3,))


def test_nor_does_a_wiped_replica_make_it_a_record(world: World) -> None:
    """A state without an ISR would stand for records that no replica has."""
    world.up(4)
    world.down(4)
    world.find("t", (4,))
    world.ask(lambda token: Reassign(token, {("t", 0): (3,)}))
    world.down(3)
    world.up(3, wiped=True)
    partition = world.partition("t")
    assert partition.isr or not partition.has_state
    world.fail_over()
    assert (world.partition("t").leader, world.partition("t").isr) == (3, (3,))


def test_a_replaced_reassignment_keeps_the_only_replica_in_sync(world: World) -> None:
    world.up(4)
    world.create("t", (1, 2))
    world.ask(lambda token: Reassign(token, {("t", 0): (3, 4)}))
    assert world.alter_isr(world.partition("t"), (1, 2, 3)) == ErrorCode.NONE
    world.down(1)
    world.down(2)
    world.up(2)
    assert (world.partition("t").leader, world.partition("t").isr) == (3, (3,))

    def reassign(*target: int) -> ErrorCode:
        [result] = world.ask(lambda token: Reassign(token, {("t", 0): target})).values()
        return ErrorCode(result[0])

    partition = world.partition("t")
    assert reassign(4, 2) is ErrorCode.NONE
    assert (partition.leader, partition.isr) == (3, (3,))
    assert (partition.adding, partition.joining, partition.removing) == ((4, 3), (4,), (1, 3))
    world.fail_over()
    partition = world.partition("t")
    assert world.alter_isr(partition, (2, 3)) == ErrorCode.NONE
    assert partition.replicas == (4, 2, 1, 3)
    assert world.alter_isr(partition, (2, 3, 4)) == ErrorCode.NEW_LEADER_ELECTED
    assert (partition.replicas, set(partition.isr), partition.leader) == ((4, 2), {4, 2}, 4)
    assert not partition.adding and not partition.removing


def test_a_replica_that_a_replaced_move_added_goes_only_when_the_target_is_in_sync(
    world: World,
) -> None:
    """Otherwise the ISR shrinks to a leader that may just have lost power (seed 202 of the
    simulator), though two replicas had the acknowledged records."""
    world.create("t", (1, 2), min_insync_replicas="2")
    world.ask(lambda token: Reassign(token, {("t", 0): (1, 3)}))
    world.down(2)
    partition = world.partition("t")
    world.ask(lambda token: Reassign(token, {("t", 0): (2, 3)}))
    assert world.alter_isr(partition, (1, 3)) == NONE
    world.ask(lambda token: Reassign(token, {("t", 0): (2, 1)}))
    assert (partition.isr, partition.replicas) == ((1, 3), (2, 1, 3))
    world.up(2)
    assert world.alter_isr(partition, (1, 3, 2)) == NONE
    assert (partition.replicas, set(partition.isr), partition.removing) == ((2, 1), {1, 2}, ())


def test_a_cancel_that_would_leave_too_few_in_sync_ends_when_they_are_back(world: World) -> None:
    world.up(4)
    world.create("t", (1, 2), min_insync_replicas="2")
    world.ask(lambda token: Reassign(token, {("t", 0): (3, 4)}))
    partition = world.partition("t")
    assert world.alter_isr(partition, (1, 2, 3)) == NONE
    world.down(2)
    assert partition.isr == (1, 3)
    for _ in range(2):
        assert world.ask(lambda token: Reassign(token, {("t", 0): None}))[("t", 0)][0] is NONE
        assert (partition.isr, partition.replicas) == ((1, 3), (1, 2, 3))
        assert (partition.adding, partition.joining, partition.removing) == ((3,), (), (3,))
    world.up(2)
    assert world.alter_isr(partition, (1, 3, 2)) == NONE
    assert (partition.replicas, set(partition.isr), partition.adding) == ((1, 2), {1, 2}, ())


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((2, 1), NONE),
        ((3, 2), NONE),
        ((1, 3, 2), NONE),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_a_replica_that_is_down_may_stay_one_and_none_is_added_to_an_unknown_broker(
    world: World, target: tuple[int, ...], code: ErrorCode
) -> None:
    world.create("t", (1, 2))
    world.down(2)
    [result] = world.ask(lambda token: Reassign(token, {("t", 0): target})).values()
    assert result[0] is code
    partition = world.partition("t")
    if 3 in target:
        assert world.alter_isr(partition, (1, 3)) == NONE
        assert set(partition.replicas) == {1, 2, 3}, "the whole target shall be in sync first"
        world.up(2)
        world.alter_isr(partition, (1, 3, 2))
    assert partition.replicas == (target if code is NONE else (1, 2))
    assert not partition.adding and partition.leader in (1, 3)
    world.fail_over()
    world.up(2)
    assert world.partition("t").leader in (1, 3)


@pytest.mark.parametrize("has_failed_over", [False, True])
@pytest.mark.parametrize("wiped", [False, True])
def test_a_move_to_a_broker_that_is_down_waits_for_it(
    world: World, has_failed_over: bool, wiped: bool
) -> None:
    world.create("t", (1, 2))
    world.down(3)
    if has_failed_over:
        world.fail_over()
    [result] = world.ask(lambda token: Reassign(token, {("t", 0): (3, 1)})).values()
    assert result[0] is NONE
    world.handle(Tick())
    partition = world.partition("t")
    assert (partition.replicas, partition.leader, partition.isr) == ((3, 1, 2), 1, (1, 2))
    if has_failed_over:
        world.fail_over()
    world.updates.clear()
    world.up(3, wiped=wiped)
    told = [row.replicas for u in world.updates if u.broker_id == 3 for row in u.replicas]
    assert told == [(3, 1, 2)], "it is told to follow"
    assert world.alter_isr(world.partition("t"), (1, 2, 3)) == NONE
    partition = world.partition("t")
    assert (partition.replicas, partition.adding, partition.removing) == ((3, 1), (), ())


def test_a_cancelled_move_that_takes_the_leader_away_ends_its_leader_epoch(world: World) -> None:
    """Also when no replica is left to lead: an epoch has one leader, or none."""
    world.up(4)
    world.up(5)
    world.create("t", (1, 2))
    world.down(5)
    partition = world.partition("t")
    target = {("t", 0): (4, 5)}
    assert world.ask(lambda token: Reassign(token, target))[("t", 0)][0] is ErrorCode.NONE
    assert world.alter_isr(partition, (1, 2, 4)) == 0
    outcome = world.ask(lambda token: ElectLeaders(token, False, (("t", 0),)))
    assert outcome[("t", 0)][0] is ErrorCode.NONE
    led = partition.leader_epoch
    assert partition.leader == 4
    for broker_id in (1, 2):
        world.machine.mark_shutting_down(broker_id, world.registered[broker_id].epoch)
    world.ask(lambda token: Reassign(token, {("t", 0): None}))
    assert (partition.leader, partition.isr, partition.leader_epoch) == (-1, (1, 2), led + 1)
    record = world.fail_over().state.partition("t", 0)
    assert record is not None and record.leader_epoch >= led + 1


def test_a_move_to_a_broker_that_is_down_is_cancelled(world: World) -> None:
    world.create("t", (1, 2))
    world.down(3)
    for target in ((3,), None):
        [result] = world.ask(lambda token, t=target: Reassign(token, {("t", 0): t})).values()
        assert result[0] is NONE
    partition = world.partition("t")
    assert (partition.replicas, partition.leader, partition.adding) == ((1, 2), 1, ())
    world.updates.clear()
    world.up(3)
    assert not any(u.replicas for u in world.updates if u.broker_id == 3)


def test_an_added_replica_whose_broker_has_died_is_no_existing_one(world: World) -> None:
    world.create("t", (1, 2))
    world.ask(lambda token: Reassign(token, {("t", 0): (1, 3)}))
    world.down(3)
    [result] = world.ask(lambda token: Reassign(token, {("t", 0): (3, 2)})).values()
    assert result[0] is NONE
    partition = world.partition("t")
    assert (partition.replicas, partition.adding, partition.removing) == ((3, 2, 1), (3,), (1,))
    assert partition.isr == (1, 2), "it has nothing yet"


def test_a_topic_grows_while_its_partitions_move(world: World) -> None:
    world.create("t", (1, 2))
    world.ask(lambda token: Reassign(token, {("t", 0): (3, 1)}))
    for count, given in ((2, ((2, 3),)), (3, None)):
        row = PartitionGrowth("t", count, given)
        [result] = world.ask(lambda token, r=row: CreatePartitions(token, (r,), False))
        assert result.error is NONE
    world.fail_over()
    assert (world.partition("t").adding, world.partition("t").removing) == ((3,), (2,))
    assert world.alter_isr(world.partition("t"), (1, 2, 3)) == NONE
    assert world.partition("t").replicas == (3, 1)
    assert world.partition("t", 1).replicas == (2, 3)
    assert len(world.partition("t", 2).replicas) == 2, "as partition 0 will have"
    world.fail_over()
    assert [world.partition("t", i).leader for i in range(2)] == [1, 2]


def test_a_move_to_a_broker_that_is_down_is_cancelled_and_begun_and_cancelled_again(
    world: World,
) -> None:
    """The pending deletion on that broker ends with the new replica, and comes back."""
    topic_id = world.create("t", (1, 2)).topic_id
    world.down(3)
    for target in ((3, 2), None, (3, 2), None):
        [(code, _)] = world.ask(
            lambda token, target=target: Reassign(token, {("t", 0): target})
        ).values()
        assert code is NONE
        notes = world.run(world.store.children(znodes.DELETIONS))
        assert len(notes) == (target is None)
    assert world.machine.state.pending_deletions[topic_id].waiting() == {0: (3,)}
    world.up(3)
    assert not world.run(world.store.children(znodes.DELETIONS))


def test_more_moves_of_a_topic_than_its_node_can_tell_of_are_refused(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper would close the connection on the write, for each controller again."""
    for broker_id in (4, 5, 6):
        world.up(broker_id)
    world.create("t", *[(1, 2, 3)] * 20)
    before = assignment_of(world.machine.state.topics["t"]).encode()
    monkeypatch.setattr(reassignments, "MOVING_BYTES_MAX", len(before) + 500)

    def move(*indexes: int) -> dict[tuple[str, int], tuple[ErrorCode, str | None]]:
        rows = {("t", index): (4, 5, 6) for index in indexes}
        found = world.ask(lambda token: Reassign(token, rows))
        assert isinstance(found, dict)
        return found

    refused = move(*range(20))
    assert {code for code, _ in refused.values()} == {ErrorCode.INVALID_REPLICA_ASSIGNMENT}
    text = refused["t", 0][1]
    assert text is not None and "reassign fewer of its partitions at a time" in text
    assert not world.machine.state.reassigning
    assert {code for code, _ in move(0, 1, 2).values()} == {NONE}
    after = assignment_of(world.fail_over().state.topics["t"]).encode()
    assert len(before) < len(after) < len(before) + 500


def test_ten_thousand_partitions_of_three_replicas_can_move_at_once() -> None:
    old, new = (101, 102, 103), (201, 202, 203)
    node = znodes.TopicAssignment(
        topic_id=UUID(int=1),
        partitions=dict.fromkeys(range(10_000), new + old),
        adding=dict.fromkeys(range(10_000), new),
        removing=dict.fromkeys(range(10_000), old),
    )
    assert len(node.encode()) < write_batches.MOVING_BYTES_MAX
