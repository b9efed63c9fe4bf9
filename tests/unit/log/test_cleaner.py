"""The cleaner on the loop: its choice of a log, logs that change meanwhile, its messages."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.records.compression import UNPACKED_VARIABLE, Compression
from headwater.testing.clocks import ManualClock
from headwater_broker.log.cleaner import (
    FAILURES_MAX,
    CleanerSettings,
    CleanInterruptedError,
    LogCleaner,
)
from headwater_broker.log.cleaner_worker import (
    IoThrottle,
    answer_to,
    decode_result,
    encode_job,
)
from headwater_broker.log.compaction_job import CleanError, CleanJob, CleanResult, clean
from headwater_broker.log.results import AppendOrigin
from unit.log.compacting import (
    SETTINGS,
    batches,
    compact,
    compacted_log,
    fill,
    latest,
    records_batch,
    visible,
)
from unit.log.harness import Box, batch


class Hands:
    """The work as tests steer it: `between` runs after the files are written, before the swap."""

    def __init__(self, box: Box, between: Callable[[], None] = lambda: None) -> None:
        self.box = box
        self.between = between
        self.folders: list[str] = []
        self.error: Exception | None = None

    async def __call__(self, job: CleanJob) -> CleanResult:
        self.folders.append(job.folder)
        if self.error is not None:
            raise self.error
        result = clean(self.box.files, job, lambda size: None)
        self.between()
        return result


def run(box: Box, hands: Hands) -> LogCleaner:
    cleaner = LogCleaner(box.manager, hands, box.clock)
    asyncio.run(cleaner.run())
    return cleaner


def leftovers(box: Box) -> list[str]:
    return [n for n in box.files.names("/d/t-0") if n.endswith((".cleaned", ".swap"))]


def test_the_dirtiest_log_is_first_and_each_is_tried_once() -> None:
    box = Box()
    fill(compacted_log(box), 24, 3)
    for name, policy in (("u", "compact"), ("v", "delete"), ("w", "compact,delete")):
        fill(box.log(topic=name, cleanup_policy=policy, segment_bytes="600"), 24, 3)
    half = box.manager.logs["u", 0]
    half.first_dirty_offset = half.bases[len(half.bases) // 2]
    half.update_config(replace(half.config, min_cleanable_dirty_ratio=0.1))
    hands = Hands(box)
    cleaner = run(box, hands)
    assert sorted(hands.folders[:2]) == ["/d/t-0", "/d/w-0"]
    assert hands.folders[2:] == ["/d/u-0"]
    assert cleaner.meter.max_dirty_ratio == 0.0
    half.update_config(replace(half.config, min_cleanable_dirty_ratio=1.0))
    half.first_dirty_offset = 0
    run(box, hands)
    assert len(hands.folders) == 3


def test_a_log_truncated_meanwhile_keeps_what_it_has() -> None:
    box = Box()
    log = compacted_log(box)
    fill(log, 20, 3)
    before = [r for r in visible(log) if r.offset < 10]
    cleaner = run(box, Hands(box, lambda: log.truncate_to(10)))
    assert visible(log) == before
    assert (log.first_dirty_offset, leftovers(box), log.uncleanable_reason) == (0, [], "")
    assert cleaner.meter.runs == 1
    fill(log, 20, 3)
    compact(box)
    assert log.first_dirty_offset == log.bases[-1]


def test_a_truncation_makes_dirty_what_will_be_written_anew() -> None:
    box = Box()
    log = compacted_log(box)
    fill(log, 20, 3)
    compact(box)
    log.truncate_to(12)
    assert log.first_dirty_offset == 12
    box.manager.maintain_files()
    fill(log, 20, 3)
    log.fsync_now()
    log = box.crash()
    assert log.log_end_offset > 20
    assert log.first_dirty_offset == 12, "a tombstone would go before what it hides"
    log.truncate_fully_and_start_at(5)
    assert log.first_dirty_offset == 5


def test_a_cut_inside_a_batch_makes_dirty_all_that_follows_its_new_end() -> None:
    log = compacted_log(Box())
    fill(log, 10, 3)
    log.first_dirty_offset = 16
    log.truncate_to(13)
    assert (log.log_end_offset, log.first_dirty_offset) == (12, 12)


def test_segments_deleted_meanwhile_stay_deleted() -> None:
    box = Box()
    log = compacted_log(box, {**SETTINGS, "cleanup.policy": "compact,delete"})
    fill(log, 20, 3)
    log.roll(2000)
    start = log.bases[2]

    def shorten() -> None:
        log.delete_records_before(start)
        log.retain(2000)

    run(box, Hands(box, shorten))
    assert (log.bases[0], leftovers(box)) == (start, [])
    assert log.first_dirty_offset == 0  # a new segment was refused: the log is looked at again
    assert next(h.base_offset for h, _ in batches(log)) >= start


def test_a_cut_meanwhile_counts_also_where_nothing_was_to_be_changed() -> None:
    box = Box()
    log = compacted_log(box)
    for number in range(12):
        log.append_as_leader(records_batch([(b"k%d" % number, bytes(200))]), 0, 2000)
    run(box, Hands(box, lambda: log.truncate_to(2)))
    assert (log.log_end_offset, log.first_dirty_offset) == (2, 0)


def test_a_tombstone_stays_while_an_older_segment_does() -> None:
    """Else what it hides would be seen again: retention shortens the log during each pass."""
    box = Box()
    log = compacted_log(box, {**SETTINGS, "cleanup.policy": "compact,delete"})
    for number in range(4):
        log.append_as_leader(records_batch([(b"%d" % number, b"v"), (b"k", b"old")]), 0, 2000)
        log.roll(2000)
    log.append_as_leader(records_batch([(b"large", bytes(400)), (b"k", None)]), 0, 2000)
    log.roll(2000)

    def shorten() -> None:
        log.delete_records_before(log.bases[1])
        assert log.retain(2000) == 1

    for _ in range(2):
        run(box, Hands(box, shorten))
        assert latest(visible(log))[b"k"][1] is None
        box.clock.advance(2000)
    compact(box)
    assert b"k" not in latest(visible(log))
    assert (log.first_dirty_offset, leftovers(box)) == (log.bases[-1], [])


def test_without_a_descriptor_a_log_is_put_off_and_stays_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = Box()
    log = compacted_log(box, {**SETTINGS, "segment.bytes": "1500"})
    for number in range(40):
        pair = (b"k%d" % (number * (number % 2)), bytes(number * 7 % 90))
        log.append_as_leader(records_batch([pair]), 0, 2000)
    before, end = batches(log), log.bases[-1]

    def refuse(path: str, **_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files", path)

    hands = Hands(box)
    with monkeypatch.context() as patch:
        hands.between = lambda: patch.setattr(box.files, "open", refuse)
        cleaner = run(box, hands)
    hands.between = lambda: None
    log.retain(2000)  # the indexes are read again
    assert batches(log) == before
    for header, _ in before:
        assert log.read(header.base_offset, 1, 1 << 30).first_offset == header.base_offset
    assert (log.uncleanable_reason, cleaner.meter.failures) == ("", 1)
    box.clock.advance(30_000)
    asyncio.run(cleaner.run())
    assert (cleaner.meter.runs, log.first_dirty_offset) == (1, end)
    seen = visible(log)
    assert visible(box.restart()) == seen


def test_a_log_deleted_meanwhile_is_left_alone() -> None:
    box = Box()
    log = compacted_log(box)
    fill(log, 20, 3)
    run(box, Hands(box, lambda: box.manager.delete(box.manager.logs["t", 0])))
    assert log.is_closed
    assert not box.files.names("/d/t-0")


def test_a_log_deleted_while_a_segment_is_written_leaves_no_folder() -> None:
    """The next segment's files made it anew, without an identity: a start set that aside."""
    box = Box()
    log = compacted_log(box)
    fill(log, 40, 12)
    told: list[int] = []

    def delete_late(size: int) -> None:
        told.append(size)
        if any(name.endswith(".cleaned") for name in box.files.names(log.path)):
            box.manager.delete(log)

    async def work(job: CleanJob) -> CleanResult:
        return clean(box.files, job, lambda size: None if log.is_closed else delete_late(size))

    asyncio.run(LogCleaner(box.manager, work, box.clock).run())
    assert told and log.is_closed
    assert not box.files.names("/d/t-0")


def test_what_cannot_be_compacted_is_marked_once_and_told() -> None:
    box = Box()
    log = compacted_log(box)
    fill(log, 20, 3)
    hands = Hands(box)
    hands.error = CleanError("no")
    cleaner = run(box, hands)
    assert (log.uncleanable_reason, cleaner.meter.uncleanable_partitions) == ("no", 1)
    assert cleaner.meter.uncleanable_bytes == log.size_bytes
    asyncio.run(cleaner.run())
    assert len(hands.folders) == 1


def test_interrupted_work_is_tried_again_but_not_for_ever() -> None:
    box = Box()
    log = compacted_log(box)
    fill(log, 20, 3)
    hands = Hands(box)
    hands.error = CleanInterruptedError("the process died")
    cleaner = LogCleaner(box.manager, hands, box.clock)
    for _ in range(FAILURES_MAX - 1):
        asyncio.run(cleaner.run())
        assert not log.uncleanable_reason
    hands.error = None
    asyncio.run(cleaner.run())
    assert cleaner.meter.runs == 1
    log.first_dirty_offset = 0
    hands.error = CleanInterruptedError("the process died")
    for _ in range(FAILURES_MAX):
        asyncio.run(cleaner.run())
    assert log.uncleanable_reason == "the process died"


def test_a_full_disk_puts_a_log_off_and_never_gives_it_up() -> None:
    box = Box()
    log = compacted_log(box)
    fill(log, 20, 3)
    hands = Hands(box)
    hands.error = OSError(errno.ENOSPC, "no space left on device")
    cleaner = LogCleaner(box.manager, hands, box.clock)
    tries = []
    for second in range(0, 7200, 10):
        asyncio.run(cleaner.run())
        if len(hands.folders) > len(tries):
            tries.append(second)
        box.clock.advance(10_000)
    gaps = [later - earlier for earlier, later in pairwise(tries)]
    assert gaps[:6] == [30, 60, 120, 240, 480, 900]
    assert set(gaps[6:]) == {900}
    assert (log.uncleanable_reason, cleaner.meter.failures) == ("", len(tries))
    hands.error = None
    box.clock.advance(900_000)
    asyncio.run(cleaner.run())
    assert (cleaner.meter.runs, log.first_dirty_offset) == (1, log.bases[-1])


def test_damage_is_never_copied() -> None:
    box = Box()
    log = compacted_log(box)
    fill(log, 20, 3)
    box.files.content(f"/d/t-0/{log.bases[1]:020d}.log")[90] ^= 1
    compact(box)
    assert "CORRUPT_MESSAGE" in log.uncleanable_reason


def test_what_unpacks_to_too_much_is_not_unpacked_and_names_the_setting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    box = Box()
    log = compacted_log(box)
    large = [(b"k", bytes(50_000))]
    for _ in range(2):
        log.append_as_leader(records_batch(large, codec=Compression.ZSTD), 0, 1000)
    log.roll(1000)
    monkeypatch.setenv(UNPACKED_VARIABLE, "50000")
    compact(box)
    for part in ("batch at offset 0", "50000 bytes unpacked", UNPACKED_VARIABLE):
        assert part in log.uncleanable_reason
    log.uncleanable_reason = ""
    monkeypatch.delenv(UNPACKED_VARIABLE)
    compact(box)
    assert (log.uncleanable_reason, [r.offset for r in visible(log)]) == ("", [1])


def test_a_map_too_small_for_one_batch_names_the_setting() -> None:
    box = Box()
    log = compacted_log(box, {**SETTINGS, "segment.bytes": "4000"})
    log.append_as_leader(records_batch([(b"%d" % n, b"v") for n in range(40)]), 0, 2000)
    log.roll(2000)
    compact(box, map_bytes_max=1000)
    assert "log.cleaner.dedupe.buffer.size" in log.uncleanable_reason


def test_a_small_map_takes_several_passes() -> None:
    box = Box()
    log = compacted_log(box)
    fill(log, 30, 20)
    wanted = latest(visible(log))
    ends = [0]
    while log.first_dirty_offset < log.bases[-1]:
        compact(box, map_bytes_max=2000)
        assert log.first_dirty_offset > ends[-1]
        ends.append(log.first_dirty_offset)
    assert len(ends) > 3
    assert latest(visible(log)) == wanted


def test_an_idle_log_is_rolled_when_its_oldest_record_is_overdue() -> None:
    box = Box()
    log = compacted_log(box, {**SETTINGS, "max.compaction.lag.ms": "5000"})
    assert log.config.effective_segment_ms == 5000
    now_ms = box.clock.now_ms()
    log.append_as_leader(records_batch([(b"a", b"1")], now_ms), 0, now_ms)
    log.append_as_leader(records_batch([(b"a", b"2")], now_ms), 0, now_ms)

    async def look() -> None:
        cleaner = LogCleaner(box.manager, Hands(box), box.clock)
        cleaner.tick()
        await cleaner.settled()

    box.clock.advance(5000)
    asyncio.run(look())
    assert len(batches(log)) == 2
    box.clock.advance(1)
    asyncio.run(look())
    assert [r.value for r in visible(log)] == [b"2"]


def test_an_open_transaction_and_the_high_watermark_bound_it() -> None:
    box = Box()
    log = compacted_log(box)
    fill(log, 10, 3)
    first = log.log_end_offset
    view = records_batch([(b"a", b"1")], producer=(7, 0, 0), transactional=True)
    log.append_as_leader(view, 0, 2000, origin=AppendOrigin.COORDINATOR)
    fill(log, 20, 3)
    compact(box)
    assert log.first_dirty_offset <= first
    log.first_dirty_offset = 0
    box.manager.high_watermarks = lambda log: 5
    compact(box)
    assert log.first_dirty_offset <= 5


def test_a_compacted_topic_refuses_records_without_key() -> None:
    log = compacted_log(Box())
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(batch(key=None), 0, 2000)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_a_follower_takes_over_a_compacted_log() -> None:
    box = Box()
    log = compacted_log(box)
    for sequence in range(30):
        view = records_batch([(b"a", b"%d" % sequence)], producer=(7, 0, sequence))
        log.append_as_leader(view, 0, 2000)
    log.append_as_leader(records_batch([(b"b", b"1")]), 0, 2000, origin=AppendOrigin.COORDINATOR)
    compact(box)
    copy = box.log(topic="copy", cleanup_policy="compact", segment_bytes="600")
    while copy.log_end_offset < log.log_end_offset:
        part = log.read(copy.log_end_offset, 1 << 20, 1 << 20)
        data = memoryview(bytearray(part.file.read_at(part.position, part.size_bytes)))
        assert copy.append_as_follower(data) == len(data)
    assert batches(copy) == batches(log)
    entries = [log.producers.entries[7], copy.producers.entries[7]]
    assert entries[0].last_sequence == entries[1].last_sequence == 29


def test_the_worker_speaks_json_and_tells_failures_apart() -> None:
    box = Box()
    log = compacted_log(box)
    fill(log, 20, 3)
    jobs: list[CleanJob] = []

    async def by_worker(job: CleanJob) -> CleanResult:
        jobs.append(job)
        return decode_result(answer_to(encode_job(job), box.files, box.clock, lambda s: None))

    cleaner = LogCleaner(box.manager, by_worker, box.clock, CleanerSettings)
    asyncio.run(cleaner.run())
    assert (cleaner.meter.runs, log.first_dirty_offset) == (1, log.bases[-1])

    def answer(job: CleanJob) -> bytes:
        return answer_to(encode_job(job), box.files, box.clock, lambda s: None)

    with pytest.raises(OSError, match="no such file"):
        decode_result(answer(replace(jobs[0], folder="/d/other-0")))
    box.files.content(f"/d/t-0/{0:020d}.log")[50] ^= 1
    with pytest.raises(CleanError, match="CRC"):
        decode_result(answer(jobs[0]))


def test_a_throttle_waits_for_the_rate() -> None:
    clock, waited = ManualClock(), []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        clock.advance(int(seconds * 1000))

    throttle = IoThrottle(clock, pause, 1000)
    for _ in range(3):
        throttle(500)
    clock.advance(10_000)
    throttle(500)
    assert waited == [0.5, 0.5, 0.5]
