"""Records without timestamps have their file's age; restart and compaction do not renew it."""

from __future__ import annotations

from headwater_broker.log.unified_log import UnifiedLog
from unit.log.compacting import SETTINGS, compact, records_batch
from unit.log.harness import Box, batch

HOUR_MS = 3_600_000
RETENTION_MS = str(10 * HOUR_MS)
LAGGING = {**SETTINGS, "min.compaction.lag.ms": RETENTION_MS, "segment.bytes": "300"}


def named(settings: dict[str, str]) -> dict[str, str]:
    return {name.replace(".", "_"): value for name, value in settings.items()}


def fill(box: Box, log: UnifiedLog, count: int) -> None:
    for n in range(count):
        view = records_batch([(b"k%d" % (n % 2), b"v%d" % n)], -1)
        log.append_as_leader(view, 0, box.clock.now_ms())
    assert log.active.max_timestamp == -1


def retained(box: Box, log: UnifiedLog) -> int:
    return log.retain(box.clock.now_ms())


def test_restarts_do_not_keep_them_for_ever() -> None:
    box = Box()
    config = {"segment_bytes": "200", "retention_ms": RETENTION_MS}
    log = box.log(**config)
    for _ in range(6):
        log.append_as_leader(batch(timestamp=-1), 0, box.clock.now_ms())
    for _ in range(2):
        box.clock.advance(5 * HOUR_MS)
        box.restart()
        log = box.log(**config)
        assert retained(box, log) == 0
    box.clock.advance(1)
    assert retained(box, log) == 3
    assert log.local_log_start_offset == 6


def test_a_file_from_the_future_is_as_old_as_its_start() -> None:
    box = Box()
    log = box.log(retention_ms=RETENTION_MS)
    log.append_as_leader(batch(timestamp=-1), 0, box.clock.now_ms())
    box.files.set_modified(f"/d/t-0/{0:020d}.log", box.clock.now_ms() + 1000 * HOUR_MS)
    box.restart()
    log = box.log(retention_ms=RETENTION_MS)
    box.clock.advance(10 * HOUR_MS + 1)
    assert retained(box, log) == 1


def test_a_compacted_segment_is_as_old_as_what_it_was_made_of() -> None:
    box = Box()
    config = {**SETTINGS, "cleanup.policy": "compact,delete", "retention.ms": RETENTION_MS}
    log = box.log(**named(config))
    fill(box, log, 30)
    box.clock.advance(5 * HOUR_MS)
    before = log.size_bytes
    compact(box)
    assert log.size_bytes < before
    box.clock.advance(5 * HOUR_MS)
    assert retained(box, log) == 0
    box.restart()
    log = box.log(**named(config))
    box.clock.advance(1)
    assert retained(box, log) > 0
    assert log.local_log_start_offset == 30


def test_min_compaction_lag_counts_from_the_file() -> None:
    box = Box()
    log = box.log(**named(LAGGING))
    fill(box, log, 30)
    box.clock.advance(10 * HOUR_MS - 1)
    compact(box)
    assert log.first_dirty_offset == 0
    box.clock.advance(2)
    compact(box)
    assert log.first_dirty_offset == log.bases[-1]
