"""File names used again: of deleted segments, and of segments whose creation failed."""

from __future__ import annotations

import asyncio
import errno
import threading
from uuid import UUID

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.testing.memory_files import MemoryFile, MemoryFiles
from headwater_broker.log.cleaner import CleanerSettings, LogCleaner
from headwater_broker.log.compaction_job import CleanJob, CleanResult, clean
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.compacting import compacted_log, latest, records_batch, visible
from unit.log.harness import Box, Job, batch

ALL = 1 << 30
NEXT_ID = UUID(int=8)


def fill(log: UnifiedLog, until: int) -> None:
    while log.log_end_offset < until:
        log.append_as_leader(batch(), 0, 2000)


def purged(box: Box) -> tuple[UnifiedLog, list[Job]]:
    """A log that retention has emptied, whose jobs are still to be done."""
    log = box.log(segment_bytes="200", retention_ms="1000")
    with box.jobs_held() as jobs:
        fill(log, 6)
        assert log.retain(box.clock.now_ms()) == 3
    assert jobs
    return log, jobs


def test_a_name_that_retention_gives_up_may_be_used_before_it_is_free() -> None:
    box = Box()
    log, jobs = purged(box)
    log.truncate_fully_and_start_at(0)
    assert (log.size_bytes, log.read(0, ALL, ALL).size_bytes) == (0, 0)
    for n in range(2):
        log.append_as_follower(batch(base_offset=n, leader_epoch=1))
    for job in jobs:
        job()
    names = box.files.names(log.path)
    assert [n for n in names if n.endswith(".log")] == [f"{0:020d}.log"]
    for _ in range(2):
        box.clock.advance(60_001)
        box.manager.remove_due_files()
    assert not [n for n in box.files.names(log.path) if n.endswith(".deleted")]
    log = box.restart()
    assert (log.log_end_offset, log.read(1, ALL, ALL).first_offset) == (2, 1)


def test_a_log_made_again_keeps_its_files_when_retention_of_the_old_one_is_late() -> None:
    """Purged by its retention, then deleted, then made again: the job renames by path."""
    box = Box()
    log, jobs = purged(box)
    box.manager.delete(log)
    log = box.log(topic_id=NEXT_ID)
    fill(log, 1)
    for job in jobs:
        job()
    for _ in range(2):
        box.clock.advance(60_001)
        box.manager.remove_due_files()
    log = box.restart()
    assert (log.topic_id, log.log_end_offset) == (NEXT_ID, 1)
    assert log.read(0, 1, ALL).size_bytes


def test_a_rename_that_fails_off_the_loop_is_the_disk_s() -> None:
    box = Box()
    log = box.log(segment_bytes="200", retention_ms="1000")
    with box.jobs_held() as jobs:
        fill(log, 6)
        log.retain(box.clock.now_ms())
    box.files.failing_prefix = log.path
    for job in jobs:
        job()
    box.manager.maintain_files()
    assert box.manager.offline_directories == ["/d"]


@pytest.mark.parametrize("refused", [".log", ".timeindex"])
def test_a_segment_that_cannot_be_made_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    box = Box()
    log = box.log(segment_bytes="200", index_interval_bytes="0")
    fill(log, 1)
    before = box.files.names(log.path)
    opened, closed = [], []
    whole, close = MemoryFiles.open, MemoryFile.close

    def open_(self: MemoryFiles, path: str, *, must_exist: bool = False) -> MemoryFile:
        if path.endswith(f"{1:020d}{refused}"):
            raise OSError(errno.EMFILE, "too many open files", path)
        file = whole(self, path, must_exist=must_exist)
        opened.append(file)
        return file

    def noted(self: MemoryFile) -> None:
        closed.append(self)
        close(self)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFiles, "open", open_)
        patch.setattr(MemoryFile, "close", noted)
        with pytest.raises(KafkaError) as raised:
            log.append_as_leader(batch(2, value=b"v" * 50), 0, 2000)
    assert raised.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert set(map(id, opened)) <= set(map(id, closed))
    assert any(file.path.endswith("index") for file in opened)
    assert box.files.names(log.path) == before
    fill(log, 5)  # the first of these fits into the old segment
    assert log.bases == [0, 2, 4]
    log = box.restart()
    assert (log.log_end_offset, log.recovered) == (5, [])
    for offset in range(5):
        assert log.read(offset, 1, ALL).first_offset == offset


class Overtaken:
    """Two hands: the first stops when it has read the keys, the second when its files are there."""

    def __init__(self, box: Box) -> None:
        self.box = box
        self.jobs: list[CleanJob] = []
        self.has_read, self.may_write = threading.Event(), threading.Event()
        self.first_ended, self.may_swap = asyncio.Event(), asyncio.Event()

    async def __call__(self, job: CleanJob) -> CleanResult:
        self.jobs.append(job)
        if len(self.jobs) == 1:
            try:
                return await asyncio.to_thread(clean, self.box.files, job, self._stop)
            finally:
                self.first_ended.set()
        result = clean(self.box.files, job, lambda size: None)
        await self.may_swap.wait()
        return result

    def _stop(self, size: int) -> None:
        self.has_read.set()
        assert self.may_write.wait(60)


def test_the_compaction_of_a_deleted_log_does_not_touch_the_one_that_has_its_name() -> None:
    """With two threads both wrote the same `.cleaned` files: what the old topic's keys hid was gone
    from the new topic."""
    box = Box()
    old = compacted_log(box)
    keyed(old, [b"k", b"k", b"last", b"k"])

    async def story() -> None:
        hands = Overtaken(box)
        cleaner = LogCleaner(box.manager, hands, box.clock, lambda: CleanerSettings(threads=2))
        cleaner.tick()
        await asyncio.to_thread(hands.has_read.wait)
        box.manager.delete(old)
        new = compacted_log(box, topic_id=NEXT_ID)
        keyed(new, [b"k", b"other", b"other", b"last"])
        wanted = latest(visible(new))
        cleaner.tick()
        for _ in range(5):
            await asyncio.sleep(0)
        hands.may_write.set()
        await hands.first_ended.wait()
        hands.may_swap.set()
        await cleaner.settled()
        assert [job.folder for job in hands.jobs] == ["/d/t-0", "/d/t-0"]
        assert latest(visible(new)) == wanted
        assert new.first_dirty_offset == new.bases[-1]
        assert not [name for name in box.files.names(new.path) if name.endswith(".cleaned")]

    asyncio.run(story())
    log = box.restart()
    assert (log.topic_id, log.recovered) == (NEXT_ID, [])


def keyed(log: UnifiedLog, keys: list[bytes]) -> None:
    """One closed segment of these keys, and an active one."""
    for key in keys:
        log.append_as_leader(records_batch([(key, bytes(60))]), 0, 2000)
    log.roll(2000)
    log.append_as_leader(records_batch([(b"active", b"v")]), 0, 2000)
    assert log.bases == [0, len(keys)]
