"""When a segment rolls; changed settings apply from the next append or tick on."""

from __future__ import annotations

import pytest

from headwater.errors import ErrorCode
from headwater_broker.log.log_config import LogConfig
from headwater_broker.log.unified_log import UnifiedLog
from unit.log.harness import Box, batch
from unit.log.test_unified_log import append, refused

SIZE = len(batch())
SEGMENT_MS = 1000
JITTER_MS = 400


def change(log: UnifiedLog, **overrides: str) -> None:
    """As a topic's configs are altered."""
    named = {name.replace("_", "."): value for name, value in overrides.items()}
    log.update_config(LogConfig.from_overrides(named))


@pytest.mark.parametrize(("room", "bases"), [(0, [0, 3, 6]), (-1, [0, 2, 4, 6])])
def test_segments_roll_before_they_would_be_too_large(room: int, bases: list[int]) -> None:
    log = Box().log(segment_bytes=str(3 * SIZE + room))
    for _ in range(7):
        append(log, batch())
    assert log.bases == bases
    assert all(segment.file.size_bytes <= 3 * SIZE + room for segment in log.segments)


def test_jitter_closes_segments_earlier_and_not_all_at_once() -> None:
    ages = set()
    for seed in range(20):
        log = Box(seed).log(segment_ms=str(SEGMENT_MS), segment_jitter_ms=str(JITTER_MS))
        timestamp = 1000
        while len(log.bases) == 1:
            append(log, batch(timestamp=timestamp))
            timestamp += 10
        ages.add(timestamp - 10 - 1000)
    assert len(ages) > 5
    assert min(ages) >= SEGMENT_MS - JITTER_MS and max(ages) <= SEGMENT_MS + 10


def test_the_next_append_goes_by_changed_settings() -> None:
    log = Box().log()
    append(log, batch(value=b"x" * 500))
    change(log, segment_bytes="600")
    append(log, batch())
    append(log, batch())
    assert log.bases == [0, 1], "segment.bytes"
    change(log, max_message_bytes="200")
    assert refused(log, batch(value=b"x" * 300)) is ErrorCode.MESSAGE_TOO_LARGE
    change(log, cleanup_policy="compact")
    assert refused(log, batch(key=None)) is ErrorCode.INVALID_RECORD


def test_the_next_retention_goes_by_changed_settings() -> None:
    log = Box().log(segment_bytes="600")
    for _ in range(40):
        append(log, batch())
    whole = len(log.segments)
    assert log.retain(2000) == 0
    change(log, retention_bytes="1500")
    assert 0 < log.retain(2000) < whole
    assert log.size_bytes >= 1500
    change(log, retention_ms="1")
    log.retain(10**9)
    assert log.log_start_offset == 40
