"""Truncation without free file descriptors, and with only a few, for over a minute."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.system_files import SystemFiles
from headwater.testing.clocks import ManualClock, SeededEntropy
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_manager import LogManager
from headwater_broker.log.results import AppendOrigin
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.compacting import end_transaction
from unit.log.harness import TOPIC_ID, batch

RECORDS = 24
HUGE = 1 << 30
SETTINGS = {"segment.bytes": "500", "index.interval.bytes": "100", "retention.ms": "-1"}
CONFIG = LogConfig.from_overrides(SETTINGS)


class RealBox:
    """A log on a real disk."""

    def __init__(self, folder: Path, records: int = RECORDS) -> None:
        self.folder = f"{folder}/data"
        self.clock = ManualClock()
        self.open_manager()
        self.log = self.manager.get_or_create("t", TOPIC_ID, 0, CONFIG, is_new=True)
        for number in range(records):
            self.log.append_as_leader(
                batch(producer_id=number // 9, epoch=0, sequence=number % 9), number // 7, 2000
            )

    def open_manager(self) -> None:
        self.manager = LogManager(
            SystemFiles(), [self.folder], broker_id=1, cluster_id="c", clock=self.clock,
            entropy=SeededEntropy(0), broker_properties={}, offload=lambda job: job(),
        )  # fmt: skip
        self.manager.load_all(lambda topic: SETTINGS)

    def restart(self) -> UnifiedLog:
        self.manager.close(5)
        self.open_manager()
        return self.manager.logs["t", 0]

    def minutes_pass(self) -> None:
        for _ in range(2):
            self.manager.maintain_files()
            self.clock.advance(61_000)
        self.manager.maintain_files()


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """So many files may be opened, and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    number = 0
    while count > 0 or number in used:
        count -= number not in used
        number += 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def offsets(log: UnifiedLog) -> list[int]:
    found, at = [], log.local_log_start_offset
    while at < log.log_end_offset:
        part = log.read(at, 1, HUGE)
        assert part.size_bytes
        found.append(part.first_offset)
        at = part.first_offset + 1
    return found


@contextmanager
def may_be_refused() -> Iterator[None]:
    """Done, or refused for want of a descriptor."""
    try:
        yield
    except KafkaError as refused:
        assert refused.code is ErrorCode.KAFKA_STORAGE_ERROR


def leftovers(log: UnifiedLog) -> list[str]:
    return [name for name in os.listdir(log.path) if name.endswith((".deleted", ".tmp"))]


@pytest.mark.parametrize("left", range(8))
@pytest.mark.parametrize("cut", [0, 1, 5, 10, 20, 23])
def test_a_truncation_is_done_or_not_begun(tmp_path: Path, cut: int, left: int) -> None:
    """It was left in the middle: a minute later the files of segments in use were closed, and the
    first read of them took the data folder offline."""
    box = RealBox(tmp_path)
    log, before = box.log, offsets(box.log)
    for _ in range(3):
        with descriptors_left(left), may_be_refused():
            log.truncate_to(cut)
    box.minutes_pass()
    assert offsets(log) in (before, list(range(cut)))
    assert box.manager.offline_directories == []
    log.truncate_to(cut)
    log.append_as_leader(batch(), 9, 2000)
    assert offsets(log) == list(range(cut + 1))
    box.minutes_pass()
    assert leftovers(log) == []
    known, epochs = log.producer_snapshot_bytes(log.log_end_offset), log.epochs.entries
    log = box.restart()
    assert (offsets(log), log.recovered) == (list(range(cut + 1)), [])
    assert log.producer_snapshot_bytes(log.log_end_offset) == known
    assert log.epochs.entries == epochs


@pytest.mark.parametrize("left", range(8))
@pytest.mark.parametrize("restarts", [False, True])
def test_a_truncation_of_aborted_transactions_is_done_or_not_begun(
    tmp_path: Path, restarts: bool, left: int
) -> None:
    """Their index is a third file: without a descriptor for it the cut was left in the middle."""
    box = RealBox(tmp_path, records=0)
    log = box.log
    for number in range(2):
        view = batch(producer_id=50, epoch=0, sequence=number, transactional=True)
        log.append_as_leader(view, 9, 2000, origin=AppendOrigin.COORDINATOR)
        end_transaction(log, 50, 0, commit=False)
    while len(log.segments) < 4:
        log.append_as_leader(batch(), 9, 2000)
    assert log.bases[1] > 3
    log = box.restart() if restarts else log
    before = offsets(log)
    with descriptors_left(left), may_be_refused():
        log.truncate_to(2)
    box.minutes_pass()
    assert offsets(log) in (before, [0, 1])
    assert box.manager.offline_directories == []
    log.truncate_to(2)
    assert (offsets(log), log.aborted_transactions(0, 9)) == ([0, 1], [(50, 0)])


@pytest.mark.parametrize("left", range(8))
@pytest.mark.parametrize("start", [0, 5, 100])
def test_a_log_begins_anew_or_stays_as_it_is(tmp_path: Path, start: int, left: int) -> None:
    box = RealBox(tmp_path)
    log, before = box.log, offsets(box.log)
    for _ in range(3):
        with descriptors_left(left), may_be_refused():
            log.truncate_fully_and_start_at(start)
    box.minutes_pass()
    assert offsets(log) in (before, [])
    assert box.manager.offline_directories == []
    log.truncate_fully_and_start_at(start)
    for _ in range(9):
        log.append_as_leader(batch(), 9, 2000)
    box.minutes_pass()
    assert leftovers(log) == []
    log = box.restart()
    assert (offsets(log), log.recovered) == (list(range(start, start + 9)), [])


@pytest.mark.parametrize("left", range(4))
def test_retention_waits_for_descriptors(tmp_path: Path, left: int) -> None:
    box = RealBox(tmp_path)
    log = box.log
    log.delete_records_before(12)
    with descriptors_left(left):
        box.manager.retain_all()
    box.minutes_pass()
    box.manager.retain_all()
    box.minutes_pass()
    assert (leftovers(log), offsets(log)) == ([], list(range(12, RECORDS)))
    assert offsets(box.restart()) == list(range(12, RECORDS))
