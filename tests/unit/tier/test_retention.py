"""Log starts of tiered partitions: prefixes of ranges, by age and by size."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater_tier.reader import TableReader
from headwater_tier.retention import Limits, Range, RangeIndex, due_starts
from typed_topic import TypedTopic

NOW = 1_000_000


def ranges(partition: int, *newest: int) -> list[Range]:
    """Ranges of ten offsets and 100 bytes each, with these largest timestamps."""
    return [Range(partition, 10 * i, 10 * i + 9, ms, 100) for i, ms in enumerate(newest)]


@pytest.mark.parametrize(
    ("newest", "start"),
    [
        ((1, 2, NOW), 20),
        ((1, NOW, 2), 10),  # a prefix only: what is old behind what is young stays
        ((NOW, 1), None),
        ((1, 2), 20),
    ],
)
def test_age_moves_the_start_to_the_first_young_range(
    newest: tuple[int, ...], start: int | None
) -> None:
    due = due_starts(ranges(0, *newest), {}, Limits(retention_ms=1000), NOW)
    assert due == ({} if start is None else {0: start})


def test_size_keeps_at_least_the_limit() -> None:
    everything = ranges(0, NOW, NOW, NOW) + ranges(1, NOW)
    assert due_starts(everything, {}, Limits(retention_bytes=200), NOW) == {0: 10}
    assert due_starts(everything, {}, Limits(retention_bytes=150), NOW) == {0: 10}
    assert due_starts(everything, {}, Limits(retention_bytes=301), NOW) == {}


def test_what_is_below_the_start_already_does_not_count() -> None:
    found = ranges(0, 1, 2, NOW)
    assert due_starts(found, {0: 20}, Limits(retention_ms=1000), NOW) == {}
    assert due_starts(found, {0: 15}, Limits(retention_ms=1000), NOW) == {0: 20}
    assert due_starts(found, {0: 10}, Limits(retention_bytes=200), NOW) == {}


def test_no_limit_is_no_work() -> None:
    assert Limits().unlimited
    assert due_starts(ranges(0, 1), {}, Limits(), NOW) == {}


def test_a_record_of_a_year_that_python_does_not_have_is_read(tmp_path: Path) -> None:
    topic, far_ms = TypedTopic(tmp_path, partitions=1), 400_000_000_000_000
    topic.log.append(0, [(5, b"k", b"a"), (far_ms, b"k", b"b")])
    topic.tier()
    reader = TableReader(topic.location)
    assert reader.read(0, 0).rows.num_rows == 2
    assert reader.first_at(0, far_ms, 0, 2) == (1, far_ms, 0)
    (found,) = RangeIndex(topic.location).ranges(reader.snapshot)
    assert found.newest_ms == far_ms
