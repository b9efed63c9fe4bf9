"""A start detects offsets that are lost in the middle of a log, but not those that compaction
removed."""

from __future__ import annotations

import errno

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import iter_headers, patch_base_offset
from headwater_broker.log.checkpoint_files import HAS_GAPS, PARTITION_METADATA
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.compacting import batches, compact, compacted_log, fill
from unit.log.harness import Box, batch

ALL_THAT_IS_LOOSE = 1 << 30
METADATA = f"/d/t-0/{PARTITION_METADATA}"
OF_AN_OLDER_HEADWATER = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABw\n"


def filled(box: Box) -> UnifiedLog:
    """A log of several segments, one record per batch."""
    log = box.log(segment_bytes="600")
    for _ in range(40):
        log.append_as_leader(batch(), 0, 2000)
    assert len(log.bases) > 4
    return log


def lose_the_last_batch_of(box: Box, base: int) -> int:
    """As a power loss between a roll and the fsync of what was rolled; where that segment ends."""
    data = box.files.content(f"/d/t-0/{base:020d}.log")
    at, header = list(iter_headers(bytes(data)))[-1]
    del data[at:]
    return header.base_offset


def offsets(log: UnifiedLog) -> list[int]:
    """Of every batch that a reader is given."""
    return [header.base_offset for header, _ in batches(log)]


def follow(log: UnifiedLog, *base_offsets: int) -> None:
    """Append as a leader sends them that has no others."""
    for offset in base_offsets:
        data = memoryview(bytearray(batch()))
        patch_base_offset(data, 0, offset, 0)
        log.append_as_follower(data)


def test_a_log_without_gaps_ends_where_offsets_were_lost_and_goes_on_from_there() -> None:
    box = Box()
    log = filled(box)
    end = lose_the_last_batch_of(box, log.bases[1])
    behind = log.bases[2:]
    log = box.crash(tear=ALL_THAT_IS_LOOSE)
    assert (log.log_end_offset, offsets(log)) == (end, list(range(end)))
    assert f"segment {behind[0]}, O: offsets before it are lost" in log.recovered[0]
    assert [note.split(":")[0] for note in log.recovered[1:]] == [
        f"segment {base}, P" for base in behind[1:]
    ]
    assert log.recovery_point <= end
    follow(log, *range(end, 40))
    log = box.crash(tear=ALL_THAT_IS_LOOSE)
    assert (offsets(log), log.recovered) == (list(range(40)), [])


def test_a_whole_segment_that_is_lost_is_noticed() -> None:
    box = Box()
    log = filled(box)
    at = log.bases[2]
    box.files.remove(f"/d/t-0/{at:020d}.log")
    log = box.crash(tear=ALL_THAT_IS_LOOSE)
    assert (log.log_end_offset, offsets(log)) == (at, list(range(at)))


def test_a_crash_while_the_rest_is_set_aside_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = Box()
    log = filled(box)
    end = lose_the_last_batch_of(box, log.bases[1])
    rename, done = box.files.rename, []

    def five_only(source: str, target: str) -> None:
        done.append(source)
        if len(done) > 5:
            raise OSError(errno.EIO, "the power is gone")
        rename(source, target)

    box.files.crash(tear=ALL_THAT_IS_LOOSE)
    with monkeypatch.context() as patched:
        patched.setattr(box.files, "rename", five_only)
        box.open_manager()
    log = box.crash(tear=ALL_THAT_IS_LOOSE)
    assert (log.log_end_offset, offsets(log)) == (end, list(range(end)))


def test_what_a_start_cut_off_goes_after_its_delay() -> None:
    """It stayed until the next start, which may be months away: space lost."""
    box = Box()
    log = filled(box)
    lose_the_last_batch_of(box, log.bases[1])
    box.files.crash(tear=ALL_THAT_IS_LOOSE)
    box.open_manager({"file.delete.delay.ms": "5000"})

    def left() -> int:
        box.manager.maintain_files()
        return len([name for name in box.files.names("/d/t-0") if name.endswith(".deleted")])

    assert left() > 3
    box.clock.advance(4999)
    assert left() > 3
    box.clock.advance(2)
    assert left() == 0
    assert offsets(box.manager.logs["t", 0])


def test_a_log_that_does_not_tell_may_have_gaps() -> None:
    box = Box()
    log = filled(box)
    lost = lose_the_last_batch_of(box, log.bases[1])
    box.files.write_atomic(METADATA, OF_AN_OLDER_HEADWATER)
    log = box.crash(tear=ALL_THAT_IS_LOOSE)
    assert offsets(log) == [offset for offset in range(40) if offset != lost]
    assert not log.is_gapless


def test_compaction_says_so_before_the_first_segment_is_swapped() -> None:
    box = Box()
    log = compacted_log(box)
    fill(log, 20, 3)
    assert log.is_gapless
    told: list[bool] = []
    rename = box.files.rename
    box.files.rename = lambda source, target: (  # type: ignore[method-assign]
        told.append(HAS_GAPS in box.files.names(log.path)),
        rename(source, target),
    )[1]
    compact(box)
    assert told
    assert all(told)
    assert not log.is_gapless
    kept = offsets(log)
    assert len(kept) < 20
    log = box.crash(tear=ALL_THAT_IS_LOOSE)
    assert (offsets(log), log.recovered, log.is_gapless) == (kept, [], False)


def test_a_follower_says_so_before_the_first_gap() -> None:
    """Its gap ends up between two segments when the log is cut in it and rolls."""
    box = Box()
    log = box.log(segment_bytes="600")
    follow(log, 0, 1, 2)
    assert log.is_gapless
    box.files.free_bytes = 0
    with pytest.raises(KafkaError) as caught:
        follow(log, 9)
    assert (caught.value.code, log.log_end_offset) == (ErrorCode.KAFKA_STORAGE_ERROR, 3)
    box.files.free_bytes = None
    log = box.crash(tear=ALL_THAT_IS_LOOSE)
    follow(log, 9)
    log.truncate_to(6)
    log.roll(2000)
    follow(log, 6, 7)
    assert log.bases == [0, 6]
    log = box.crash(tear=ALL_THAT_IS_LOOSE)
    assert (offsets(log), log.recovered, log.is_gapless) == ([0, 1, 2, 6, 7], [], False)


def test_a_new_log_tells_and_keeps_telling_over_restarts_and_truncation() -> None:
    box = Box()
    log = filled(box)
    log.truncate_to(17)
    log.truncate_fully_and_start_at(100)
    follow(log, 100, 101)
    assert box.restart().is_gapless
    assert box.crash().is_gapless


@pytest.mark.parametrize("renames", range(1, 12))
def test_a_crash_in_the_middle_of_a_truncation_leaves_no_hole(
    renames: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nothing is scanned: below the recovery point, in a log that does not tell."""
    box = Box()
    log = filled(box)
    box.files.write_atomic(METADATA, OF_AN_OLDER_HEADWATER)
    log.fsync_now()
    box.manager.checkpoint_recovery_points()
    rename, done = box.files.rename, []

    def so_many(source: str, target: str) -> None:
        done.append(source)
        if len(done) > renames:
            raise OSError(errno.EIO, "the power is gone")
        rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(box.files, "rename", so_many)
        with pytest.raises(KafkaError):
            log.truncate_to(9)
    log = box.crash(tear=ALL_THAT_IS_LOOSE)
    assert offsets(log) == list(range(log.log_end_offset))
    assert log.log_end_offset >= 9
