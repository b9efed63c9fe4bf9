"""A damaged batch below the recovery point fails its reads alone: the log dir stays online."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import AT_BATCH_LENGTH, AT_LAST_OFFSET_DELTA, AT_MAGIC
from headwater.testing.memory_files import MemoryFile
from headwater_broker.log.compaction_job import CleanError, CleanJob, clean
from headwater_broker.log.log_segment import LogSegment
from headwater_broker.log.producer_snapshot_format import encode_snapshot
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.harness import Box, batch

ALL = 1 << 30
BATCHES = 40
PER_SEGMENT = 10
DAMAGED = 13
"""The fourth batch of the second segment."""

FLIPS: dict[str, tuple[int, str, int]] = {
    "no length": (AT_BATCH_LENGTH, ">i", 0),
    "a negative length": (AT_BATCH_LENGTH, ">i", -12),
    "a short length": (AT_BATCH_LENGTH, ">i", 20),
    "a length out of the file": (AT_BATCH_LENGTH, ">i", 1 << 24),
    "a length into the next batch": (AT_BATCH_LENGTH, ">i", 100),
    "an offset far ahead": (0, ">q", 1 << 60),
    "another format": (AT_MAGIC, ">b", 77),
    "a last offset below the first": (AT_LAST_OFFSET_DELTA, ">i", -(1 << 20)),
}
SEEN_BY_CRC = ("a length into the next batch", "a last offset below the first")
"""A read does not look at every header so closely: the consumer's CRC tells, or the next read."""


def filled(box: Box, flip: str, *, damaged: int = DAMAGED, **config: str) -> UnifiedLog:
    """Segments of ten batches; one batch's header rots after all were made durable."""
    size = len(batch(timestamp=1000))
    log = box.log(segment_bytes=str(PER_SEGMENT * size), **config)
    for n in range(BATCHES):
        log.append_as_leader(batch(timestamp=1000 + n), 0, 2000)
    log.fsync_now()
    box.manager.checkpoint_recovery_points()
    assert log.bases == list(range(0, BATCHES, PER_SEGMENT))
    rot(log, damaged, flip)
    return log


def rot(log: UnifiedLog, offset: int, flip: str) -> None:
    segment = log.segments[offset // PER_SEGMENT]
    assert isinstance(segment.file, MemoryFile)
    place = segment.find(offset)
    assert place is not None
    at, form, value = FLIPS[flip]
    struct.pack_into(form, segment.file.data, place.position + at, value)


def refused(work: Callable[[], object]) -> ErrorCode:
    with pytest.raises(KafkaError) as raised:
        work()
    return raised.value.code


@pytest.mark.parametrize("flip", [flip for flip in FLIPS if flip not in SEEN_BY_CRC])
def test_a_read_that_meets_damage_fails_alone(flip: str) -> None:
    box = Box()
    log = filled(box, flip)
    assert refused(lambda: log.read(DAMAGED, 1, ALL)) is ErrorCode.CORRUPT_MESSAGE
    for offset in (0, 9, 12, 20, BATCHES - 1):
        assert log.read(offset, 1, ALL).first_offset == offset
    assert box.manager.offline_directories == []
    log.append_as_leader(batch(), 0, 2000)
    box.crash(tear=ALL)  # below the recovery point it is trusted, and met by whoever reads there
    log = box.manager.logs["t", 0]
    assert log.log_end_offset == BATCHES + 1
    assert refused(lambda: log.read(DAMAGED, 1, ALL)) is ErrorCode.CORRUPT_MESSAGE
    assert box.manager.offline_directories == []


@pytest.mark.parametrize("flip", FLIPS)
def test_a_read_up_to_a_bound_ends_before_damage(flip: str) -> None:
    box = Box()
    log = filled(box, flip)
    found = log.read(12, ALL, 15)
    assert found.first_offset == 12
    assert found.size_bytes <= 3 * len(batch()), "nothing at or above the bound"


@pytest.mark.parametrize("flip", FLIPS)
def test_lookups_that_meet_damage_fail_alone(flip: str) -> None:
    box = Box()
    log = filled(box, flip)
    assert refused(lambda: log.offset_for_timestamp(1015, ALL)) is ErrorCode.CORRUPT_MESSAGE
    found = log.offset_for_timestamp(1025, ALL)
    assert found is not None
    assert found.offset == 25
    assert refused(lambda: log.max_timestamp_offset(18)) is ErrorCode.CORRUPT_MESSAGE
    assert refused(lambda: log.producer_snapshot_bytes(18)) is ErrorCode.CORRUPT_MESSAGE
    assert box.manager.offline_directories == []


def test_it_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    log = filled(Box(), "no length")
    for _ in range(5):
        refused(lambda: log.read(DAMAGED, 1, ALL))
    assert len([r for r in caplog.records if "no whole batch" in r.getMessage()]) == 1


@pytest.mark.parametrize("flip", ["no length", "a length out of the file"])
def test_a_cut_behind_damage_is_refused_and_changes_nothing(flip: str) -> None:
    box = Box()
    log = filled(box, flip)
    names = box.files.names("/d/t-0")
    assert refused(lambda: log.truncate_to(17)) is ErrorCode.CORRUPT_MESSAGE
    assert (log.log_end_offset, box.files.names("/d/t-0")) == (BATCHES, names)
    assert box.manager.offline_directories == []
    log.truncate_to(11)
    assert log.log_end_offset == 11
    for n in range(11, 31):
        log.append_as_follower(batch(base_offset=n, leader_epoch=1))
    assert log.read(DAMAGED, 1, ALL).first_offset == DAMAGED


def test_a_cut_leaves_the_log_usable_when_producers_cannot_be_replayed() -> None:
    box = Box()
    log = filled(box, "no length", damaged=3)
    for offset in list(log.snapshots.offsets):
        log.snapshots.remove([offset])
    log.truncate_to(25)
    assert (log.log_end_offset, box.manager.offline_directories) == (25, [])
    view = batch(producer_id=5, epoch=0, sequence=0)
    assert log.append_as_leader(view, 1, 2000).base_offset == 25
    assert list(log.producers.entries) == [5]


def test_retention_and_rolling_do_not_mind() -> None:
    box = Box()
    log = filled(box, "no length", retention_ms="1000")
    log.roll(2000)
    assert log.retain(box.clock.now_ms()) == 4
    assert log.local_log_start_offset == BATCHES
    assert box.manager.offline_directories == []


@pytest.mark.parametrize("flip", ["no length", "a length out of the file", "another format"])
def test_compaction_of_a_damaged_log_is_given_up(flip: str) -> None:
    box = Box()
    log = filled(box, flip, cleanup_policy="compact")
    job = CleanJob(
        folder=log.path, bases=log.bases[:3], end=30, later_bases=log.bases[3:], first_dirty=0,
        producers=encode_snapshot([]), now_ms=5000, delete_retention_ms=1, segment_bytes=10_000,
        index_interval_bytes=4096, index_entries_max=1000, map_bytes_max=1 << 20,
        io_bytes_per_s=1e9,
    )  # fmt: skip
    with pytest.raises((CleanError, KafkaError)):
        clean(box.files, job, lambda size: None)


def test_a_clean_stop_with_a_damaged_end_is_scanned_and_no_clean_stop() -> None:
    box = Box()
    filled(box, "no length", damaged=37)
    log = box.restart()
    assert (log.log_end_offset, box.manager.offline_directories) == (37, [])
    assert any("scanned" in note for note in log.recovered)
    assert box.manager.clean_broker_epoch == -1, "it may not lead by what it no longer has"


@pytest.mark.parametrize("damaged", [3, DAMAGED])
def test_damage_below_the_end_costs_a_start_nothing_but_a_word(damaged: int) -> None:
    box = Box()
    log = filled(box, "no length", damaged=damaged)
    for name in box.files.names("/d/t-0"):
        if name.endswith((".snapshot", "leader-epoch-checkpoint")):
            box.files.remove(f"/d/t-0/{name}")
    box.files.crash(tear=ALL)
    box.open_manager()
    log = box.manager.logs["t", 0]
    assert (log.log_end_offset, box.manager.offline_directories) == (BATCHES, [])
    assert any("producers" in note for note in log.recovered)
    assert any("epochs" in note for note in log.recovered)


def test_times_behind_damage_are_not_made_up() -> None:
    box = Box()
    log = filled(box, "no length", damaged=13)
    old = log.segments[1]
    again = LogSegment(box.files, log.path, 10, has_txn_index=False, now_ms=0)
    again.time_index.truncate(10)
    with pytest.raises(KafkaError):
        again.load_times()
    assert (old.max_timestamp, again.max_timestamp) == (1019, 1012)


def test_a_damaged_swap_found_at_start_replaces_what_it_can_show_to_hold() -> None:
    box = Box()
    log = filled(box, "no length", damaged=5)
    first, second = (s.file.read_at(0, s.file.size_bytes) for s in log.segments[:2])
    for suffix, data in (("index", b""), ("timeindex", b""), ("log", first + second)):
        box.files.write_atomic(f"/d/t-0/{0:020d}.{suffix}.swap", data)
    box.files.crash(tear=ALL)
    box.open_manager()
    log = box.manager.logs["t", 0]
    assert (log.bases[:2], box.manager.offline_directories) == ([0, 10], [])
    assert log.read(4, 1, ALL).first_offset == 4
    assert refused(lambda: log.read(5, 1, ALL)) is ErrorCode.CORRUPT_MESSAGE
    assert log.read(12, 1, ALL).first_offset == 12
