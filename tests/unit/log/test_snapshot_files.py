"""Producer snapshots are deleted with their segments: none is left behind."""

from __future__ import annotations

from uuid import UUID

import pytest

from headwater.testing.memory_files import MemoryFile
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.log_segment import SNAPSHOT_SUFFIX
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.harness import Box, Job, batch


def on_disk(box: Box) -> list[int]:
    """The offsets of the snapshot files."""
    names = box.files.names("/d/t-0")
    return sorted(int(n.partition(".")[0]) for n in names if n.endswith(SNAPSHOT_SUFFIX))


def write(log: UnifiedLog, count: int) -> None:
    """So many batches of one producer."""
    for _ in range(count):
        sequence = log.log_end_offset
        view = batch(producer_id=7, epoch=0, sequence=sequence)
        log.append_as_leader(view, 0, 2000)


def restarted(box: Box) -> UnifiedLog:
    """After a clean stop."""
    log = box.restart()
    log.update_config(LogConfig.from_overrides({"segment.bytes": "600"}))
    return log


def stopped_often(box: Box) -> UnifiedLog:
    """A log of several segments; the broker was stopped within some of them."""
    log = box.log(segment_bytes="600")
    for _ in range(5):
        write(log, 5)
        log = restarted(box)
    return log


def rolled_just_now(box: Box) -> tuple[UnifiedLog, list[Job]]:
    """A log of two segments, and what the roll has left to the disk's threads."""
    log = box.log(segment_bytes="600")
    with box.jobs_held() as jobs:
        while len(log.bases) < 2:
            write(log, 1)
    assert jobs
    return log, jobs


def test_a_start_keeps_those_of_segments_and_the_newest() -> None:
    box = Box()
    log = stopped_often(box)
    wanted = {*log.bases[1:], log.log_end_offset}
    assert set(on_disk(box)) == set(log.snapshots.offsets) == wanted
    assert log.producers.entries[7].last_sequence == log.log_end_offset - 1


def test_retention_removes_all_below_the_new_start() -> None:
    box = Box()
    log = stopped_often(box)
    write(log, 4)
    log.snapshots.write(log.bases[2] - 1, log.producers)
    log.delete_records_before(log.bases[3])
    assert log.retain(3000) == 3
    assert min(on_disk(box)) >= log.bases[0]
    assert on_disk(box) == log.snapshots.offsets


def test_one_that_is_written_after_a_truncation_tells_of_nothing_cut() -> None:
    """Found at the next start it would call a batch a duplicate that never was in this log."""
    box = Box()
    log, jobs = rolled_just_now(box)
    rolled = log.bases[1]
    log.truncate_to(rolled - 2)
    for sequence in range(2):
        log.append_as_leader(batch(producer_id=8, epoch=0, sequence=sequence), 1, 2000)
    for job in jobs:
        job()
    log.fsync_now()
    assert rolled not in on_disk(box)
    assert box.crash().producers.entries[7].last_sequence == rolled - 3


def test_one_of_a_deleted_log_is_not_left_in_the_folder_of_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The topic is deleted and made again while the disk is at work for the old one."""
    box = Box()
    old, jobs = rolled_just_now(box)
    rolled = old.bases[1]
    fsync = MemoryFile.fsync

    def meanwhile(file: MemoryFile) -> None:
        fsync(file)
        if not old.is_closed:
            box.manager.delete(old)
            log = box.log(topic_id=UUID(int=8))
            for sequence in range(rolled + 1):
                log.append_as_leader(batch(producer_id=8, epoch=0, sequence=sequence), 0, 2000)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFile, "fsync", meanwhile)
        for job in jobs:
            job()
    assert rolled not in on_disk(box)
    new = box.manager.logs["t", 0]
    new.fsync_now()
    assert set(box.crash().producers.entries) == {8}
