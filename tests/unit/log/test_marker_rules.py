"""Which transaction markers a log takes, and how it writes several of them (KIP-98, KIP-890)."""

from __future__ import annotations

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import iter_headers
from headwater.records.control import ControlType, build_marker
from headwater_broker.log.results import AppendOrigin
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.harness import Box, batch
from unit.log.test_producer_rules import mark, send_txn

COORDINATOR = AppendOrigin.COORDINATOR
MARKERS = AppendOrigin.MARKERS
HUGE = 1 << 30


def is_new(log: UnifiedLog, epoch: int, version: int, coordinator: int = 0) -> bool:
    return log.producers.check_marker(1, epoch, coordinator, "t-0", transaction_version=version)


def refusal(log: UnifiedLog, epoch: int, version: int, coordinator: int = 0) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        is_new(log, epoch, version, coordinator)
    return caught.value.code


def marker(pid: int, *, commit: bool = False, epoch: int = 1, timestamp: int = 2000) -> bytes:
    kind = ControlType.COMMIT if commit else ControlType.ABORT
    return bytes(
        build_marker(
            kind, producer_id=pid, producer_epoch=epoch, coordinator_epoch=0, timestamp=timestamp
        )
    )


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_marker_of_a_higher_epoch_is_new_even_when_nothing_is_open(version: int) -> None:
    log = Box().log()
    assert is_new(log, 0, version), "an unknown producer"
    mark(log, 1, commit=False, epoch=3)
    assert is_new(log, 4, version)
    with pytest.raises(KafkaError) as late:
        mark(log, 1, commit=False, epoch=4)
        log.append_as_leader(batch(producer_id=1, epoch=3, sequence=0), 0, 2000)
    assert late.value.code is ErrorCode.INVALID_PRODUCER_EPOCH, "the marker has fenced"


def test_version_2_repeats_a_marker_only_when_nothing_is_open() -> None:
    log = Box().log()
    send_txn(log, 1, 0)
    mark(log, 1, commit=True, epoch=1)
    assert not is_new(log, 1, 2)
    send_txn(log, 1, 0, epoch=1)
    assert refusal(log, 1, 2) is ErrorCode.INVALID_PRODUCER_EPOCH, "it would end the next one"
    assert is_new(log, 2, 2)


def test_version_1_takes_the_epoch_of_its_batches() -> None:
    log = Box().log()
    send_txn(log, 1, 0)
    assert is_new(log, 0, 1)
    mark(log, 1, commit=True)
    assert is_new(log, 0, 1)


@pytest.mark.parametrize("version", [1, 2])
def test_lower_epochs_and_older_coordinators_are_refused(version: int) -> None:
    log = Box().log()
    send_txn(log, 1, 0)
    mark(log, 1, commit=True, epoch=1, coordinator=4)
    assert refusal(log, 0, version, 9) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(log, 1, version, 3) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert refusal(log, 2, version, 3) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_records_of_long_ago_do_not_let_the_coordinator_epoch_regress() -> None:
    """KAFKA-9144: the producer counts from its marker on, not from its records' timestamps."""
    box = Box()
    log = box.log()
    day_ms = 86_400_000
    now = box.clock.now_ms()
    old = batch(producer_id=1, epoch=0, sequence=0, transactional=True, timestamp=now - 9 * day_ms)
    log.append_as_leader(old, 0, now, origin=COORDINATOR)
    log.producers.expire(now + 99 * day_ms, day_ms)
    assert log.producers.entries[1].transaction_first_offset == 0, "an open one never expires"
    data = build_marker(
        ControlType.ABORT, producer_id=1, producer_epoch=1, coordinator_epoch=4, timestamp=now
    )
    log.append_as_leader(memoryview(data), 0, now, origin=COORDINATOR)
    log.producers.expire(now + day_ms - 1, day_ms)
    assert refusal(log, 1, 1, coordinator=3) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    log.producers.expire(now + day_ms, day_ms)
    assert log.producers.entries == {}


@pytest.mark.parametrize("origin", [COORDINATOR, MARKERS])
def test_several_markers_are_one_write(origin: AppendOrigin) -> None:
    log = Box().log()
    for pid in (1, 2, 3):
        send_txn(log, pid, 0)
    data = bytearray(b"".join(marker(pid, commit=pid == 2) for pid in (1, 2, 3)))
    result = log.append_as_leader(memoryview(data), 5, 2000, origin=origin)
    assert (result.base_offset, result.last_offset, log.log_end_offset) == (3, 5, 6)
    written = memoryview(log.active.file.read_at(0, log.size_bytes))
    assert [(h.base_offset, h.leader_epoch) for _, h in iter_headers(written)][3:] == [
        (3, 5), (4, 5), (5, 5)
    ]  # fmt: skip
    assert log.aborted_transactions(0, HUGE) == [(1, 0), (3, 2)]
    assert log.last_stable_offset(6) == 6


def test_of_several_markers_all_are_written_or_none() -> None:
    log = Box().log()
    send_txn(log, 1, 0)
    send_txn(log, 2, 0, epoch=7)
    data = bytearray(marker(1) + marker(2))
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(memoryview(data), 0, 2000, origin=COORDINATOR)
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (log.log_end_offset, log.producers.entries[1].transaction_first_offset) == (2, 0)
    spoilt = bytearray(marker(1) + marker(2, epoch=8))
    spoilt[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(memoryview(spoilt), 0, 2000, origin=COORDINATOR)
    assert (caught.value.code, log.log_end_offset) == (ErrorCode.CORRUPT_MESSAGE, 2)


def test_markers_of_this_broker_are_taken_as_those_that_are_parsed() -> None:
    logs = []
    for origin in (COORDINATOR, MARKERS):
        log = Box().log(message_timestamp_type="LogAppendTime", compression_type="gzip")
        send_txn(log, 1, 0)
        send_txn(log, 2, 0)
        rows = [marker(1), marker(2, commit=True), marker(3, epoch=9, timestamp=2001)]
        log.append_as_leader(memoryview(bytearray(b"".join(rows))), 4, 2000, origin=origin)
        logs.append(log)
    parsed, built = logs
    files = [log.active.file.read_at(0, log.size_bytes) for log in logs]
    assert files[0] == files[1]
    assert built.producer_snapshot_bytes(5) == parsed.producer_snapshot_bytes(5)
    assert built.epochs.entries == parsed.epochs.entries
    assert [log.aborted_transactions(0, HUGE) for log in logs] == [[(1, 0)], [(1, 0)]]
    assert [log.last_stable_offset(5) for log in logs] == [5, 5]


@pytest.mark.parametrize("origin", [COORDINATOR, MARKERS])
def test_a_marker_fits_however_small_batches_must_be(origin: AppendOrigin) -> None:
    """Else its transaction would hold the last stable offset for ever."""
    log = Box().log()
    send_txn(log, 1, 0)
    send_txn(log, 2, 0)
    log.update_config(Box().log(max_message_bytes="10").config)
    data = bytearray(marker(1) + marker(2))
    assert log.append_as_leader(memoryview(data), 0, 2000, origin=origin).last_offset == 3
    assert log.last_stable_offset(4) == 4


def test_batches_of_a_rewritten_topic_are_still_rewritten() -> None:
    log = Box().log(message_timestamp_type="LogAppendTime")
    data = bytearray(bytes(batch(2, timestamp=1000)) + bytes(batch(1, timestamp=1000)))
    result = log.append_as_leader(memoryview(data), 0, 7777, origin=COORDINATOR)
    assert (result.base_offset, result.last_offset) == (0, 2)
    written = memoryview(log.active.file.read_at(0, log.size_bytes))
    assert [h.max_timestamp for _, h in iter_headers(written)] == [7777, 7777]


@pytest.mark.parametrize("origin", [COORDINATOR, MARKERS])
@pytest.mark.parametrize("way", ["restart", "crash", "truncate"])
def test_what_one_write_left_is_found_again(way: str, origin: AppendOrigin) -> None:
    box = Box()
    log = box.log(segment_bytes="300")
    for pid in (1, 2, 3):
        send_txn(log, pid, 0)
    data = bytearray(b"".join(marker(pid) for pid in (1, 2)))
    log.append_as_leader(memoryview(data), 0, 2000, origin=origin)
    if way == "restart":
        log = box.restart()
    elif way == "crash":
        log = box.crash(tear=1 << 30)
    else:
        send_txn(log, 9, 0)
        log.truncate_to(5)
    assert log.aborted_transactions(0, HUGE) == [(1, 0), (2, 1)]
    assert log.last_stable_offset(5) == 2
    if way != "truncate":
        log.truncate_to(4)
        assert (log.log_end_offset, log.aborted_transactions(0, HUGE)) == (4, [(1, 0)])
        assert log.last_stable_offset(4) == 1
