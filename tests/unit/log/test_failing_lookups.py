"""A failing disk under any operation of a log: a KafkaError of that log, with its code."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.testing.memory_files import MemoryFiles
from headwater_broker.log.transaction_index import TransactionIndex
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.harness import Box, batch

ASKED: dict[str, Callable[[UnifiedLog], object]] = {
    "a time": lambda log: log.offset_for_timestamp(1000, 10),
    "the largest time": lambda log: log.max_timestamp_offset(3),
    "an end by bytes": lambda log: log.offset_at_bytes(0, 100),
    "aborted transactions": lambda log: log.aborted_transactions(0, 10),
    "producers back then": lambda log: log.producer_snapshot_bytes(3),
    "a snapshot": lambda log: log.load_producer_snapshot(log.producer_snapshot_bytes(10)),
    "a cut": lambda log: log.truncate_to(3),
    "a new beginning": lambda log: log.truncate_fully_and_start_at(2),
}


def filled(box: Box) -> UnifiedLog:
    log = box.log(segment_bytes="200")
    for n in range(10):
        log.append_as_leader(batch(producer_id=1, epoch=0, sequence=n), 0, 2000)
    for segment in log.segments:
        segment.unload_indexes()
    return log


@pytest.mark.parametrize("asked", ASKED)
def test_every_file_of_a_log_may_fail(asked: str) -> None:
    box = Box()
    log = filled(box)
    for segment in log.segments:
        at = segment.txn_index.path  # as of a loaded log that has aborted transactions
        segment.txn_index = TransactionIndex(box.files, at, exists=True)
    box.files.failing_prefix = log.path
    with pytest.raises(KafkaError) as raised:
        ASKED[asked](log)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert box.manager.offline_directories == ["/d"]


@pytest.mark.parametrize("failing", ["remove", "read"])
def test_a_cut_that_cannot_learn_its_producers_fails(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    box = Box()
    log = filled(box)
    whole = getattr(MemoryFiles, failing)

    def fail(self: MemoryFiles, path: str) -> object:
        if path.endswith(".snapshot"):
            raise OSError(errno.EIO, "injected", path)
        return whole(self, path)

    log.snapshots.write(9, log.producers)
    monkeypatch.setattr(MemoryFiles, failing, fail)
    with pytest.raises(KafkaError) as raised:
        log.truncate_to(3)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert log.is_closed, "its producers are those of before the cut"
