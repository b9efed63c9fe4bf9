"""Idempotence and transactions, live and after a rebuild."""

from __future__ import annotations

from itertools import product

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK
from headwater.records.control import ControlType, build_marker
from headwater_broker.log.results import AppendOrigin
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.harness import Box, batch

HUGE = 1 << 30


def send(log: UnifiedLog, sequence: int, *, count: int = 1, epoch: int = 0, pid: int = 9):
    view = batch(count, producer_id=pid, epoch=epoch, sequence=sequence)
    return log.append_as_leader(view, 0, 2000)


def send_txn(log: UnifiedLog, pid: int, sequence: int, epoch: int = 0) -> int:
    view = batch(producer_id=pid, epoch=epoch, sequence=sequence, transactional=True)
    origin = AppendOrigin.COORDINATOR
    return log.append_as_leader(view, 0, 2000, origin=origin).base_offset


def mark(log: UnifiedLog, pid: int, *, commit: bool, epoch: int = 0, coordinator: int = 0) -> int:
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    view = build_marker(
        kind, producer_id=pid, producer_epoch=epoch, coordinator_epoch=coordinator, timestamp=1
    )
    origin = AppendOrigin.COORDINATOR
    return log.append_as_leader(memoryview(view), 0, 2000, origin=origin).base_offset


def refusal(log: UnifiedLog, sequence: int, epoch: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        send(log, sequence, epoch=epoch)
    return caught.value.code


def test_duplicates_of_the_last_five_batches_get_their_first_offsets() -> None:
    log = Box().log()
    for i in range(7):
        send(log, 2 * i, count=2)
    for i in range(2, 7):
        again = send(log, 2 * i, count=2)
        assert (again.duplicate, again.base_offset, again.last_offset) == (True, 2 * i, 2 * i + 1)
    assert refusal(log, 2) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(log, 15) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 14


@pytest.mark.parametrize("is_open", [False, True])
def test_what_follows_is_what_the_checks_allow(*, is_open: bool) -> None:
    log = Box().log()
    top = 2**31 - 1
    for at, sequence in enumerate((top - 1, top, 0, 1, 2, 3)):
        view = batch(producer_id=9, epoch=3, sequence=sequence, transactional=is_open)
        log.append_as_leader(view, 0, 2000, origin=AppendOrigin.TRANSACTION)
        assert log.log_end_offset == at + 1
    mark(log, 8, commit=True, epoch=3)
    found = set()
    for pid, epoch, sequence, transactional in product(
        (7, 8, 9), (2, 3, 4), (0, 1, 3, 4, 5, top), (False, True)
    ):
        attributes = TRANSACTIONAL_MASK if transactional else 0
        follows = log.producers.follows(pid, epoch, sequence, attributes)
        assert not log.producers.follows(pid, epoch, sequence, attributes | CONTROL_MASK)
        entry = log.producers.entries.get(pid)
        try:
            log.producers.check_batch(pid, epoch, sequence, transactional=transactional, where="")
        except KafkaError:
            is_allowed = False
        else:
            is_allowed = True
        is_known = entry is not None and entry.find_duplicate(epoch, sequence, sequence) is not None
        assert not follows or (is_allowed and not is_known)
        found.add((follows, is_allowed))
    assert (True, True) in found and (False, False) in found


def test_epochs_fence_and_begin_at_zero() -> None:
    log = Box().log()
    send(log, 5)
    assert refusal(log, 3, epoch=1) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    send(log, 0, epoch=1)
    assert refusal(log, 6, epoch=0) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_sequences_wrap_around() -> None:
    log = Box().log()
    top = 2**31 - 1
    send(log, top - 1, count=3)
    assert send(log, top - 1, count=3).duplicate
    assert send(log, 1).base_offset == 3
    log = Box().log()
    send(log, top)
    assert send(log, 0).base_offset == 1


def test_open_transactions_hold_the_last_stable_offset() -> None:
    log = Box().log()
    first, second = send_txn(log, 1, 0), send_txn(log, 2, 0)
    assert (first, second, log.producers.first_unstable_offset) == (0, 1, 0)
    end = mark(log, 1, commit=False)
    assert log.producers.first_unstable_offset == 0, "its marker is not replicated yet"
    assert log.last_stable_offset(end + 1) == second
    mark(log, 2, commit=True)
    assert log.last_stable_offset(log.log_end_offset) == log.log_end_offset
    assert log.aborted_transactions(0, HUGE) == [(1, 0)]
    assert log.aborted_transactions(end + 1, HUGE) == []
    with pytest.raises(KafkaError) as caught:
        send_txn(log, 3, 0)
        send(log, 1, pid=3)
    assert caught.value.code is ErrorCode.INVALID_TXN_STATE


def test_the_last_stable_offset_is_never_below_the_log_start() -> None:
    """A reader that begins at the latest offset would be sent to deleted ones."""
    log = Box().log()
    send_txn(log, 1, 0)
    for sequence in range(4):
        send(log, sequence, pid=9)
    log.delete_records_before(3)
    assert (log.producers.first_unstable_offset, log.last_stable_offset(5)) == (0, 3)
    mark(log, 1, commit=False)
    assert log.last_stable_offset(6) == 6


def test_markers_fence() -> None:
    log = Box().log()
    send_txn(log, 1, 0)
    mark(log, 1, commit=True, epoch=1, coordinator=4)
    assert refusal_of_marker(log, 0, 4) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal_of_marker(log, 1, 3) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert send_txn(log, 1, 0, epoch=1) == 2


def refusal_of_marker(log: UnifiedLog, epoch: int, coordinator: int) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        mark(log, 1, commit=True, epoch=epoch, coordinator=coordinator)
    return caught.value.code


@pytest.mark.parametrize("way", ["restart", "crash", "truncate"])
def test_state_survives(way: str) -> None:
    box = Box()
    log = box.log(segment_bytes="400")
    for i in range(20):
        send(log, i)
    send_txn(log, 1, 0)
    mark(log, 1, commit=False)
    open_at = send_txn(log, 2, 0)
    if way == "restart":
        log = box.restart()
    elif way == "crash":
        log = box.crash(tear=1 << 30)
    else:
        end = log.log_end_offset
        send(log, 20)
        log.truncate_to(end)
    assert log.last_stable_offset(log.log_end_offset) == open_at
    assert log.aborted_transactions(0, HUGE) == [(1, 20)]
    again = send(log, 19)
    assert (again.duplicate, again.base_offset) == (True, 19)
    send(log, 20)
    assert log.producers.entries[2].transaction_first_offset == open_at


def test_snapshot_travels_to_another_replica() -> None:
    log, other = Box().log(), Box().log()
    send(log, 0)
    other.truncate_fully_and_start_at(1)
    other.load_producer_snapshot(log.producer_snapshot_bytes(1), 1)
    assert send(other, 0).duplicate
    assert send(other, 1).base_offset == 1
