"""Which part of a log may be compacted, and the grouping of segments: over all small inputs."""

from __future__ import annotations

from itertools import pairwise, product

from headwater_broker.log.cleanable_offsets import (
    GROUP_SEGMENTS_MAX,
    SegmentSpan,
    cleanable,
    group_segments,
)
from headwater_broker.log.log_config import LogConfig

NOW_MS = 100_000


def config(**overrides: str) -> LogConfig:
    named = {name.replace("_", "."): value for name, value in overrides.items()}
    return LogConfig.from_overrides({"cleanup.policy": "compact", **named})


def spans(*newest: int) -> list[SegmentSpan]:
    """Segments of ten offsets and 100 bytes, with these newest timestamps; the last is active."""
    return [
        SegmentSpan(10 * index, 10 * index + 10, 100, stamp - 5, stamp)
        for index, stamp in enumerate(newest)
    ]


def test_only_whole_closed_stable_segments_old_enough_are_cleanable() -> None:
    for first_dirty, stable, lag, ages in product(
        range(0, 45, 5), range(0, 45, 5), (0, 50), product((10, 100), repeat=4)
    ):
        segments = spans(*(NOW_MS - age for age in ages))
        part = cleanable(
            segments, first_dirty, stable, config(min_compaction_lag_ms=str(lag)), NOW_MS
        )
        taken = [s for s in segments if s.next_offset <= part.end]
        assert segments[-1] not in taken
        assert all(s.next_offset <= stable for s in taken)
        dirty = [s for s in taken if s.next_offset > first_dirty]
        if lag:
            assert all(NOW_MS - s.newest_ms >= lag for s in dirty)
        following = segments[len(taken)]
        assert (
            following is segments[-1]
            or following.next_offset > stable
            or (lag and NOW_MS - following.newest_ms < lag)
        )
        assert part.dirty_bytes == 100 * len(dirty)
        assert part.clean_bytes == 100 * (len(taken) - len(dirty))
        assert 0 <= part.first_dirty <= max(part.end, 0)


def test_a_log_is_due_by_its_ratio_or_by_its_oldest_dirty_record() -> None:
    segments = spans(NOW_MS - 900, NOW_MS - 500, NOW_MS - 100)
    part = cleanable(segments, 10, 30, config(), NOW_MS)
    assert (part.dirty_ratio, part.is_overdue) == (0.5, False)
    assert (part.is_due(0.5), part.is_due(0.4)) == (False, True)
    overdue = cleanable(segments, 10, 30, config(max_compaction_lag_ms="504"), NOW_MS)
    assert overdue.is_due(1.0)
    assert not cleanable(segments, 10, 30, config(max_compaction_lag_ms="505"), NOW_MS).is_overdue
    clean = cleanable(segments, 20, 30, config(max_compaction_lag_ms="1"), NOW_MS)
    assert not clean.is_due(0.0)


def test_groups_are_in_order_and_within_every_limit() -> None:
    for sizes in product((1, 40, 100), repeat=5):
        old = [(10 * i, 10 * i + 10, size) for i, size in enumerate(sizes)]
        found = group_segments(old, 100, 9, 9)
        assert [base for group in found for base in group] == [base for base, _, _ in old]
        totals = [sum(sizes[base // 10] for base in group) for group in found]
        for group, total in zip(found, totals, strict=True):
            assert len(group) == 1 or (total <= 100 and total // 10 < 9)
        for (group, following), (total, _) in zip(pairwise(found), pairwise(totals), strict=True):
            grown = total + sizes[following[0] // 10]
            assert grown > 100 or grown // 10 >= 9, group
    many = [(i, i + 1, 1) for i in range(3 * GROUP_SEGMENTS_MAX)]
    assert [len(g) for g in group_segments(many, 1 << 20, 1 << 20, 4096)] == [
        GROUP_SEGMENTS_MAX
    ] * 3
    far = [(0, 1 << 31, 1), (1 << 31, (1 << 31) + 5, 1)]
    assert group_segments(far, 100, 100, 100) == [[0], [1 << 31]]
