"""Holds of a share partition: who may begin and end them, and what of them is durable."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.replica.share.holds import OWNERS_MAX, HeldRange
from headwater_broker.replica.share.ports import StateBatch
from headwater_broker.replica.share.runs import Change, RecordState
from headwater_broker.replica.share.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    Limits,
    SharePartition,
    Wanted,
)

LIMITS = Limits()


def acquired(count: int = 10, member: str = "m") -> SharePartition:
    machine = SharePartition(0)
    machine.acquire(member, 0, [(0, count - 1)], Wanted(count), LIMITS, deadline=30.0)
    return machine


def held(machine: SharePartition) -> list[tuple[str, int, int, int]]:
    return [tuple(row) for row in machine.holds]


def hold(machine: SharePartition, batch: int, *ranges: tuple[int, int], ticket: int = 1) -> None:
    change = machine.holds.hold("q", ticket, batch, "m", ranges)
    assert change is not None
    machine.commit(change)


def reloaded(
    machine: SharePartition, batches: Iterable[StateBatch] = (StateBatch(0, 9, 0, 1),)
) -> SharePartition:
    return SharePartition(machine.start_offset, batches, machine.holds.encoded(()))


def refuses(code: ErrorCode, call: object) -> None:
    assert callable(call)
    with pytest.raises(KafkaError) as refusal:
        call()
    assert refusal.value.code is code


def test_a_hold_outlives_lock_session_and_leader() -> None:
    machine = acquired()
    hold(machine, 1, (2, 4), (6, 6))
    machine.expire(31.0, LIMITS)
    machine.release("m", LIMITS)
    assert held(machine) == [("q", 1, 2, 4), ("q", 1, 6, 6)]
    assert machine.next_deadline() is None
    for at in (machine, reloaded(machine, [StateBatch(0, 9, 0, 1)])):
        rows = at.acquire("n", 0, [(0, 9)], Wanted(20), LIMITS, 60.0)
        assert [(r.first, r.last) for r in rows] == [(0, 1), (5, 5), (7, 9)]
        assert held(at) == [("q", 1, 2, 4), ("q", 1, 6, 6)]


def test_nobody_else_acknowledges_what_is_held() -> None:
    machine = acquired()
    hold(machine, 1, (0, 9))
    rows = [Acknowledgement(0, 9, (AcknowledgeType.ACCEPT,))]
    for member in ("m", "n", ""):
        refuses(
            ErrorCode.INVALID_RECORD_STATE,
            lambda m=member: machine.acknowledge(m, rows, LIMITS, renewed=None),
        )


def test_only_locks_of_the_member_become_holds_all_or_none() -> None:
    machine = acquired()
    machine.acquire("n", 10, [(10, 12)], Wanted(3), LIMITS, 30.0)
    for ranges in ([(8, 11)], [(8, 13)], [(0, 2), (12, 12)]):
        refuses(
            ErrorCode.INVALID_RECORD_STATE,
            lambda r=ranges: machine.holds.hold("q", 1, 1, "m", r),
        )
    assert held(machine) == []


def test_accepted_is_accepted_once_and_may_be_asked_again() -> None:
    machine = acquired()
    hold(machine, 4, (0, 9))
    assert machine.holds.hold("q", 1, 4, "m", [(0, 9)]) is None  # its reply was lost
    change = machine.holds.accept("q", 1, 4, [(0, 9)])
    assert change is not None and change.batches == [StateBatch(0, 9, 2, 1)]
    machine.commit(change)
    assert machine.start_offset == 10
    assert machine.holds.accept("q", 1, 4, [(0, 9)]) is None
    assert reloaded(machine).holds.accept("q", 1, 4, [(0, 9)]) is None
    refuses(ErrorCode.INVALID_RECORD_STATE, lambda: machine.holds.accept("q", 1, 5, [(0, 9)]))


def test_a_batch_that_was_accepted_is_not_held_again() -> None:
    machine = acquired()
    hold(machine, 4, (0, 4))
    change = machine.holds.accept("q", 1, 4, [(0, 4)])
    assert change is not None
    machine.commit(change)
    refuses(ErrorCode.INVALID_REQUEST, lambda: machine.holds.hold("q", 2, 4, "m", [(5, 9)]))


def test_a_failed_acceptance_leaves_the_hold() -> None:
    machine = acquired()
    hold(machine, 1, (0, 9))
    change = machine.holds.accept("q", 1, 1, [(0, 9)])
    assert change is not None
    refuses(ErrorCode.REQUEST_TIMED_OUT, lambda: machine.holds.accept("q", 1, 1, [(0, 9)]))
    assert held(reloaded(machine)) == [("q", 1, 0, 9)]  # not durable: still held
    assert machine.holds.encoded({change}) != machine.holds.encoded(())
    machine.roll_back(change)
    assert held(machine) == [("q", 1, 0, 9)]
    again = machine.holds.accept("q", 1, 1, [(0, 9)])
    assert again is not None
    machine.commit(again)
    assert held(machine) == []


def test_what_is_released_is_delivered_and_its_delivery_does_not_count() -> None:
    machine = acquired()
    hold(machine, 1, (0, 9))
    assert machine.holds.release("q", 1, 2, [(0, 9)]) is None  # of another batch
    change = machine.holds.release("q", 1, 1, [(3, 9)])
    assert change is not None
    machine.commit(change)
    (row,) = machine.acquire("n", 0, [(0, 9)], Wanted(20), LIMITS, 60.0)
    assert row == (3, 9, 1)


def test_a_newer_run_fences_the_older() -> None:
    machine = acquired()
    hold(machine, 1, (0, 4), ticket=5)
    machine.holds.claim("q", 7)
    for call in (
        lambda: machine.holds.claim("q", 6),
        lambda: machine.holds.hold("q", 5, 1, "m", [(5, 9)]),
        lambda: machine.holds.accept("q", 5, 1, [(0, 4)]),
        lambda: machine.holds.release("q", 5, 1, [(0, 4)]),
    ):
        refuses(ErrorCode.PRODUCER_FENCED, call)
    assert held(machine) == [("q", 1, 0, 4)]
    machine.holds.claim("other", 1)


@pytest.mark.parametrize("state", [RecordState.AVAILABLE, RecordState.ACKNOWLEDGED])
def test_an_operator_ends_all_holds_of_an_owner(state: RecordState) -> None:
    machine = acquired()
    hold(machine, 1, (0, 4))
    change = machine.holds.end_all("q", state)
    assert change is not None
    machine.commit(change)
    assert held(machine) == []
    assert machine.start_offset == (0 if state is RecordState.AVAILABLE else 5)
    refuses(ErrorCode.PRODUCER_FENCED, lambda: machine.holds.claim("q", 10**9))
    refuses(ErrorCode.PRODUCER_FENCED, lambda: reloaded(machine).holds.claim("q", 10**9))


def test_durable_acceptance_wins_over_an_older_table_of_holds() -> None:
    machine = acquired()
    hold(machine, 1, (0, 9))
    loaded = reloaded(machine, [StateBatch(0, 9, 0, 1), StateBatch(2, 4, 2, 1)])
    assert held(loaded) == [("q", 1, 0, 1), ("q", 1, 5, 9)]


def test_idle_owners_are_forgotten_those_that_hold_are_not() -> None:
    machine = acquired()
    hold(machine, 1, (0, 4), ticket=9)
    for number in range(2 * OWNERS_MAX):
        machine.holds.claim(f"idle-{number}", 9)
    machine.holds.claim("idle-0", 1)  # forgotten: a lower ticket is a new owner's
    refuses(ErrorCode.PRODUCER_FENCED, lambda: machine.holds.claim("q", 8))
    assert HeldRange("q", 1, 0, 4) in list(machine.holds)


def test_a_change_of_holds_says_so() -> None:
    assert not Change().has_holds
    machine = acquired()
    change = machine.holds.hold("q", 1, 1, "m", [(0, 9)])
    assert change is not None and change.has_holds
    # Brokers that know no holds deliver the records again.
    assert change.batches == [StateBatch(0, 9, 0, 1)]
