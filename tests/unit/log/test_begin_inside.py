"""A follower whose leader's log start (DeleteRecords) is inside a batch."""

from __future__ import annotations

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.harness import Box, batch

BASE, START, END = 10, 15, 20


def sent(base: int = BASE, count: int = END - BASE, leader_epoch: int = 3) -> memoryview:
    """What the leader sends for `START`: the batch that holds it, whole."""
    return batch(
        count, base_offset=base, leader_epoch=leader_epoch, producer_id=7, epoch=0, sequence=base
    )


def begun(box: Box, log_start_offset: int = START) -> UnifiedLog:
    log = box.log(remote_storage_enable="true" if log_start_offset < START else "false")
    log.truncate_fully_and_start_at(START, log_start_offset)
    return log


def test_the_whole_batch_is_taken_and_the_start_stays() -> None:
    box = Box()
    log = begun(box)
    assert log.append_as_follower(sent()) == len(sent())
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (15, 15, 20)
    assert (log.bases, log.epochs.entries) == ([BASE], [(3, BASE)])
    log.append_as_follower(sent(END, 1))
    assert log.log_end_offset == END + 1


def test_it_is_all_there_after_a_restart() -> None:
    box = Box()
    begun(box).append_as_follower(sent())
    log = box.restart()
    assert (log.log_start_offset, log.log_end_offset, log.bases) == (START, END, [BASE])
    assert log.read(START, 1, END).first_offset == BASE


def test_tiered_history_producers_and_epochs_of_the_leader_stay() -> None:
    box = Box()
    log = begun(box, log_start_offset=2)
    log.load_epochs([(1, 2), (3, START)])
    leader = Box().log()
    leader.append_as_leader(batch(producer_id=8, epoch=0, sequence=0), 0, 2000)
    log.load_producer_snapshot(leader.producer_snapshot_bytes(1))
    log.append_as_follower(sent())
    assert (log.log_start_offset, log.local_log_start_offset, log.log_end_offset) == (2, 15, 20)
    assert log.epochs.entries == [(1, 2), (3, BASE)]
    assert sorted(log.producers.entries) == [7, 8]
    log = box.crash(tear=1 << 30)
    assert sorted(log.producers.entries) == [7, 8]


@pytest.mark.parametrize("base", [0, END], ids=["ends before", "a log that is not empty"])
def test_other_batches_that_do_not_follow_are_refused(base: int) -> None:
    log = begun(Box())
    if base:
        log.append_as_follower(sent(START, 3))
        base = BASE
    before = log.log_start_offset, log.log_end_offset
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(sent(base))
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert (log.log_start_offset, log.log_end_offset) == before
