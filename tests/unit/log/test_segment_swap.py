"""A crash at any step of a compaction leaves each new segment whole or its old ones."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from headwater.records.batch import HEADER_BYTES, read_header
from headwater.records.record import Record
from headwater.testing.memory_files import MemoryFile, MemoryFiles
from headwater_broker.log.cleaner import LogCleaner
from headwater_broker.log.compaction_job import CleanJob, CleanResult, clean
from headwater_broker.log.results import AppendOrigin
from headwater_broker.log.segment_swap import SwapCase, SwapFacts, judge_swap
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.compacting import (
    SETTINGS,
    compact,
    compacted_log,
    end_transaction,
    fill,
    latest,
    records_batch,
    visible,
)
from unit.log.harness import Box


class PowerLoss(BaseException):
    """The machine stopped; nothing may catch this."""


class _StoppingFile(MemoryFile):
    def append(self, view: memoryview | bytes) -> None:
        """Counted."""
        self._owner.step()
        super().append(view)

    def fsync(self) -> None:
        """Counted."""
        self._owner.step()
        super().fsync()

    _owner: StoppingFiles


class StoppingFiles(MemoryFiles):
    """Stops before the n-th change of the disk."""

    left: int | None = None

    def step(self) -> None:
        """One change is about to happen."""
        if self.left is None:
            return
        if self.left == 0:
            raise PowerLoss
        self.left -= 1

    def open(self, path: str, *, must_exist: bool = False) -> MemoryFile:
        """A file whose changes are counted."""
        node = super().open(path, must_exist=must_exist).node
        return _StoppingFile(self, path, node)

    def write_atomic(self, path: str, data: bytes) -> None:
        """Counted."""
        self.step()
        super().write_atomic(path, data)

    def rename(self, source: str, target: str) -> None:
        """Counted."""
        self.step()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        """Counted."""
        self.step()
        super().remove(path)


def filled(files: MemoryFiles) -> tuple[Box, UnifiedLog]:
    """Small segments of an earlier pass, which the next one puts together, and dirty ones."""
    box = Box()
    box.files = files
    box.manager.close()
    box.open_manager()
    log = compacted_log(box)
    fill(log, 24, 3)
    compact(box)
    for sequence in range(4):
        view = records_batch([(b"t", b"%d" % sequence)], producer=(7, 0, sequence),
                             transactional=True)  # fmt: skip
        log.append_as_leader(view, 0, 3000, origin=AppendOrigin.COORDINATOR)
        end_transaction(log, 7, 0, commit=sequence % 2 == 0)
    fill(log, 12, 2, now_ms=3000)
    log.fsync_now()
    box.manager.checkpoint_recovery_points()
    return box, log


def compact_all(box: Box) -> LogCleaner:
    """One pass with big segments, so that many become one."""
    log = compacted_log(box, {**SETTINGS, "segment.bytes": "1500"})
    assert log.first_dirty_offset > 0

    async def work(job: CleanJob) -> CleanResult:
        return clean(box.files, job, lambda size: None)

    cleaner = LogCleaner(box.manager, work, box.clock)
    asyncio.run(cleaner.run())
    return cleaner


def steps_of_a_pass() -> int:
    files = StoppingFiles()
    box, log = filled(files)
    files.left = 1 << 30
    count = len(log.segments)
    compact_all(box)
    assert len(log.segments) < count - 4
    return (1 << 30) - files.left


STEPS = steps_of_a_pass()


def test_a_pass_has_enough_steps_to_be_worth_stopping() -> None:
    assert STEPS > 60


@pytest.mark.parametrize("step", range(STEPS))
def test_a_crash_leaves_old_or_new(step: int) -> None:
    files = StoppingFiles()
    box, log = filled(files)
    before = visible(log)
    end = log.log_end_offset
    files.left = step
    with pytest.raises(PowerLoss):
        compact_all(box)
    files.left = None
    after_crash(box, before, end)
    assert not [n for n in files.names("/d/t-0") if n.endswith((".swap", ".cleaned"))]


def after_crash(box: Box, before: list[Record], end: int) -> None:
    """Nothing lost, nothing back; and the next pass comes to its end."""
    log = box.crash(tear=0)
    compacted_log(box)
    seen = visible(log)
    assert log.log_end_offset == end
    assert latest(seen) == latest(before)
    left = {r.offset: r for r in before}
    assert all(left[r.offset] == r for r in seen)
    assert log.bases == sorted(set(log.bases))
    for record in seen:  # by the indexes, too
        part = log.read(record.offset, 1, end)
        first = read_header(part.file.read_at(part.position, HEADER_BYTES))
        assert first.base_offset <= record.offset <= first.last_offset
    log.first_dirty_offset = 0
    compact(box)
    assert not log.uncleanable_reason
    assert latest(visible(log)) == latest(before)


@pytest.mark.parametrize("first", [3, 9, 15, 21, 40, 60])
def test_a_crash_while_starting_again_changes_nothing(first: int) -> None:
    """Whatever recovery had done when it was stopped too, the next start goes on from there."""
    for second in range(12):
        files = StoppingFiles()
        box, log = filled(files)
        before, end = visible(log), log.log_end_offset
        files.left = STEPS - first
        with pytest.raises(PowerLoss):
            compact_all(box)
        files.crash(tear=0)
        files.left = second
        try:
            box.open_manager()
        except PowerLoss:
            pass  # or it came to its end: fewer steps were needed
        files.left = None
        after_crash(box, before, end)


def test_every_state_of_a_swap_has_its_letter() -> None:
    for has_swap, has_log in product((False, True), repeat=2):
        case = judge_swap(SwapFacts(has_swap, has_log))
        if not has_swap:
            assert case is SwapCase.T_UNDO
        else:
            assert case is (SwapCase.U_REPLACE if has_log else SwapCase.V_RENAME)
