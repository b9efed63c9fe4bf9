"""Share partitions: what is delivered, to whom, how often, and what becomes of it."""

from __future__ import annotations

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.replica.share.ports import StateBatch
from headwater_broker.replica.share.runs import Change
from headwater_broker.replica.share.share_partition import (
    Acknowledgement,
    Limits,
    SharePartition,
    Wanted,
    late_portion,
)

ALL = Wanted(1_000)
LIMITS = Limits()
FAR = 1e9
ACCEPT, RELEASE, REJECT, RENEW, GAP = 1, 2, 3, 4, 0


def acquire(
    machine: SharePartition,
    *batches: tuple[int, int],
    member: str = "a",
    wanted: Wanted = ALL,
    limits: Limits = LIMITS,
    deadline: float = FAR,
) -> list[tuple[int, int, int]]:
    rows = machine.acquire(
        member, machine.next_fetch_offset(), list(batches), wanted, limits, deadline
    )
    return [tuple(row) for row in rows]


def answer(
    machine: SharePartition,
    kind: int,
    first: int,
    last: int,
    member: str = "a",
    limits: Limits = LIMITS,
) -> Change | None:
    rows = [Acknowledgement(first, last, (kind,))]
    return machine.acknowledge(member, rows, limits, renewed=2 * FAR)


def settle(machine: SharePartition, *answers: tuple[int, int, int], member: str = "a") -> None:
    for kind, first, last in answers:
        change = answer(machine, kind, first, last, member)
        if change is not None:
            machine.commit(change)


def test_a_gap_wider_than_the_limit_of_locks_takes_no_room() -> None:
    """As `headwater restore` leaves one: what comes behind it is acquired at once."""
    machine = SharePartition(5)
    gap = 1 << 33
    assert acquire(machine, (5 + gap, 9 + gap)) == [(5 + gap, 9 + gap, 1)]
    assert (machine.start_offset, machine.in_flight) == (5 + gap, 5)


def test_records_behind_a_wide_gap_wait_for_those_before_it() -> None:
    machine = SharePartition(5)
    gap = 1 << 33
    assert acquire(machine, (5, 6)) == [(5, 6, 1)]
    machine.skip_absent(7, 6 + gap)
    assert not machine.can_acquire(LIMITS)
    settle(machine, (ACCEPT, 5, 6))
    assert machine.can_acquire(LIMITS)
    assert acquire(machine, (7 + gap, 8 + gap)) == [(7 + gap, 8 + gap, 1)]


def test_accepted_records_are_not_delivered_again_and_the_start_offset_passes_them() -> None:
    machine = SharePartition(5)
    assert acquire(machine, (5, 9), (10, 14)) == [(5, 14, 1)]
    settle(machine, (ACCEPT, 5, 7), (ACCEPT, 10, 14))
    assert (machine.start_offset, machine.end_offset, machine.next_fetch_offset()) == (8, 15, 15)
    settle(machine, (RELEASE, 8, 9))
    assert machine.next_fetch_offset() == 8
    assert acquire(machine, (5, 9), member="b") == [(8, 9, 2)]
    settle(machine, (ACCEPT, 8, 9), member="b")
    assert machine.start_offset == 15


def test_the_start_offset_waits_for_the_persister() -> None:
    machine = SharePartition(0)
    acquire(machine, (0, 9))
    change = answer(machine, ACCEPT, 0, 9)
    assert change is not None and machine.start_offset == 0
    machine.commit(change)
    assert machine.start_offset == 10


def test_a_failed_write_leaves_the_records_with_their_member_until_the_lock_ends() -> None:
    machine = SharePartition(0)
    acquire(machine, (0, 9), deadline=30.0)
    change = answer(machine, ACCEPT, 0, 4)
    assert change is not None
    expired = machine.expire(31.0, LIMITS)
    assert expired is not None and expired.batches == [StateBatch(5, 9, 0, 1)]
    assert machine.next_fetch_offset() == 5, "an acknowledgement under way does not expire"
    machine.roll_back(change)
    assert machine.expire(31.0, LIMITS) is not None
    assert machine.next_fetch_offset() == 0


def test_only_the_holder_acknowledges_and_all_or_nothing() -> None:
    machine = SharePartition(0)
    acquire(machine, (0, 4))
    acquire(machine, (5, 9), member="b")
    with pytest.raises(KafkaError) as refused:
        answer(machine, ACCEPT, 3, 6)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    with pytest.raises(KafkaError) as refused:
        answer(machine, ACCEPT, 8, 10, "b")
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    settle(machine, (ACCEPT, 0, 4))
    with pytest.raises(KafkaError) as refused:
        answer(machine, ACCEPT, 5, 9)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE
    with pytest.raises(KafkaError) as refused:
        answer(machine, ACCEPT, 0, 4)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE, "below the start offset"


def test_a_late_answer_is_refused_once_another_member_has_accepted() -> None:
    machine = SharePartition(0)
    acquire(machine, (0, 4), deadline=3.0)
    assert machine.expire(3.0, LIMITS) is not None
    assert acquire(machine, (0, 4), member="b") == [(0, 4, 2)]
    settle(machine, (ACCEPT, 0, 4), member="b")
    assert machine.start_offset == 5
    with pytest.raises(KafkaError) as refused:
        answer(machine, ACCEPT, 0, 4)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE


def test_types_one_by_one() -> None:
    machine = SharePartition(0)
    acquire(machine, (0, 4))
    rows = [Acknowledgement(0, 4, (ACCEPT, GAP, RELEASE, REJECT, RENEW))]
    change = machine.acknowledge("a", rows, LIMITS, renewed=50.0)
    assert change is not None
    assert change.batches == [
        StateBatch(0, 0, 2, 1), StateBatch(1, 1, 4, 1), StateBatch(2, 2, 0, 1),
        StateBatch(3, 3, 4, 1),
    ]  # fmt: skip
    machine.commit(change)
    assert (machine.start_offset, machine.archived, machine.next_deadline()) == (2, 1, 50.0)


def test_a_group_may_forbid_renewal() -> None:
    machine = SharePartition(0)
    acquire(machine, (0, 4))
    with pytest.raises(KafkaError) as refused:
        machine.acknowledge("a", [Acknowledgement(0, 4, (RENEW,))], LIMITS, renewed=None)
    assert refused.value.code is ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize(
    "rows",
    [
        [Acknowledgement(3, 2, (1,))],
        [Acknowledgement(0, 2, (1, 1))],
        [Acknowledgement(0, 2, ())],
        [Acknowledgement(0, 2, (5,))],
        [Acknowledgement(0, 2, (1,)), Acknowledgement(2, 3, (1,))],
    ],
)
def test_malformed_acknowledgements(rows: list[Acknowledgement]) -> None:
    machine = SharePartition(0)
    acquire(machine, (0, 4))
    with pytest.raises(KafkaError) as refused:
        machine.acknowledge("a", rows, LIMITS, renewed=None)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_whole_batches_may_pass_the_number_asked_for_unless_it_is_a_limit() -> None:
    batches = [(0, 3), (4, 7), (8, 11)]
    assert acquire(SharePartition(0), *batches, wanted=Wanted(6)) == [(0, 7, 1)]
    exact = SharePartition(0)
    assert acquire(exact, *batches, wanted=Wanted(6, is_exact=True)) == [(0, 5, 1)]
    assert exact.end_offset == 6
    assert acquire(exact, *batches[1:], wanted=Wanted(6, is_exact=True)) == [(6, 11, 1)]


def test_rows_are_cut_at_batches_of_about_the_size_asked_for() -> None:
    rows = acquire(SharePartition(0), (0, 2), (3, 5), (6, 8), wanted=Wanted(100, batch_size=4))
    assert rows == [(0, 5, 1), (6, 8, 1)]


def test_no_more_is_in_flight_than_the_limit() -> None:
    limits = Limits(record_locks=6)
    machine = SharePartition(0)
    assert acquire(machine, (0, 4), (5, 9), limits=limits) == [(0, 9, 1)]
    assert not machine.can_acquire(limits)
    assert acquire(machine, (10, 14), limits=limits) == []
    assert machine.end_offset == 10
    settle(machine, (RELEASE, 3, 3))
    assert machine.can_acquire(limits)
    assert acquire(machine, (0, 4), limits=limits) == [(3, 3, 2)]
    exact = Wanted(100, is_exact=True)
    assert acquire(SharePartition(0), (0, 9), wanted=exact, limits=limits) == [(0, 5, 1)]


def test_a_record_is_archived_after_the_last_delivery_that_nobody_accepted() -> None:
    machine, limits = SharePartition(0), Limits(deliveries=2)
    for count in (1, 2):
        assert acquire(machine, (0, 0), limits=limits) == [(0, 0, count)]
        change = answer(machine, RELEASE, 0, 0, limits=limits)
        assert change is not None
        machine.commit(change)
    assert (machine.start_offset, machine.archived) == (1, 1)


def test_what_fails_again_and_again_comes_in_ever_smaller_pieces() -> None:
    assert [late_portion(count, 64, 5) for count in range(5)] == [None, None, None, 32, 1]
    assert [late_portion(count, 64, 2) for count in range(2)] == [None, None]


def test_one_bad_record_is_archived_alone() -> None:
    """Who fails at record 40 gives back all of its fetch. All others are accepted in the end."""
    machine, accepted = SharePartition(0), set()
    for _ in range(400):
        rows = acquire(machine, (0, 63))
        if not rows:
            break
        held = [offset for first, last, _ in rows for offset in range(first, last + 1)]
        kind = RELEASE if 40 in held else ACCEPT
        if kind == ACCEPT:
            accepted |= set(held)
        for first, last, _ in rows:
            settle(machine, (kind, first, last))
    assert machine.start_offset == 64
    assert accepted == set(range(64)) - {40}


def test_offsets_that_the_log_does_not_hold_are_done_with() -> None:
    machine = SharePartition(0)
    assert acquire(machine, (3, 5), (9, 9)) == [(3, 5, 1), (9, 9, 1)]
    assert machine.start_offset == 3
    settle(machine, (ACCEPT, 3, 5), (ACCEPT, 9, 9))
    assert machine.start_offset == 10


def test_the_log_start_takes_the_start_offset_along() -> None:
    machine = SharePartition(0)
    acquire(machine, (0, 9))
    change = answer(machine, ACCEPT, 0, 5)
    assert change is not None
    machine.log_start_moved(8)
    machine.commit(change)
    assert [(r.first, r.last) for r in machine.runs()] == [(8, 9)]
    machine.log_start_moved(20)
    assert (machine.start_offset, machine.end_offset) == (20, 20)
    assert answer(machine, ACCEPT, 8, 9) is None


def test_a_session_that_ends_gives_back_what_it_holds() -> None:
    machine = SharePartition(0)
    acquire(machine, (0, 4))
    acquire(machine, (5, 9), member="b")
    change = machine.release("a", LIMITS)
    assert change is not None and change.batches == [StateBatch(0, 4, 0, 1)]
    assert machine.release("a", LIMITS) is None
    assert machine.locks == 5
    assert acquire(machine, (0, 4), member="b") == [(0, 4, 2)]


def test_loading_fills_what_was_acquired_when_the_last_leader_went() -> None:
    machine = SharePartition(
        5, [StateBatch(5, 5, 2, 1), StateBatch(8, 9, 4, 3), StateBatch(12, 13, 0, 2)]
    )
    assert (machine.start_offset, machine.end_offset) == (6, 14)
    assert acquire(machine, (0, 19)) == [(6, 7, 1), (10, 11, 1), (12, 13, 3), (14, 19, 1)]
