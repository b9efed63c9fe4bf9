"""The offset map: exact in both directions, by chunks, cut and pruned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.mirror.core.offset_translation import CHUNK_RUNS, OffsetMap, Run, translated

Gaps = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(1, 5)), max_size=200)
"""(offsets left out in the source, in the target, records) of each run."""


def built(gaps: list[tuple[int, int, int]], source: int = 0, target: int = 0) -> OffsetMap:
    made = OffsetMap()
    for left_out, markers, length in gaps:
        source, target = source + left_out, target + markers
        made.add([Run(source, target, length)])
        source, target = source + length, target + length
    return made


def pairs(made: OffsetMap) -> list[tuple[int, int]]:
    """(source, target) of every record: the slow, obvious map."""
    return [(run.source + n, run.target + n) for run in made for n in range(run.length)]


@given(Gaps, st.integers(0, 1000))
def test_a_translation_names_the_next_record_or_the_end(
    gaps: list[tuple[int, int, int]], offset: int
) -> None:
    made = built(gaps)
    records = pairs(made)
    swapped = [(target, source) for source, target in records]
    for find, rows in ((made.next_from_source, records), (made.next_from_target, swapped)):
        assert find(offset) == next((row for row in rows if row[0] >= offset), None)
    following = [target for source, target in records if source >= offset]
    end = records[-1][1] + 1 if records else None
    assert made.to_target(offset) == (following[0] if following else end)


@given(Gaps, st.integers(0, 300))
def test_after_target_is_the_first_offset_that_no_record_of_the_mirror_has(
    gaps: list[tuple[int, int, int]], offset: int
) -> None:
    made = built(gaps)
    own = {target for _, target in pairs(made)}
    if own:
        own |= set(range(min(own)))  # what is before the first run was mirrored, and pruned
    while offset in own:
        offset += 1
    assert made.after_target(offset) == offset
    if own:
        assert made.after_target(0) == next(n for n in range(10_000) if n not in own)


@given(Gaps, st.data())
def test_chunks_hold_the_whole_map_and_a_change_names_those_to_be_written(
    gaps: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    stored: dict[int, list[Run]] = {}
    made = OffsetMap()
    source = target = 0
    for left_out, markers, length in gaps:
        source, target = source + left_out, target + markers
        for chunk in made.add([Run(source, target, length)]):
            stored[chunk] = made.chunk(chunk)
        source, target = source + length, target + length
    for gone in made.prune(data.draw(st.integers(0, source + 1))):
        del stored[gone]
    assert list(OffsetMap.from_chunks(stored)) == list(made)
    assert all(len(runs) <= CHUNK_RUNS for runs in stored.values())
    changed, gone = made.cut(data.draw(st.integers(0, source + 1)))
    for chunk in changed:
        stored[chunk] = made.chunk(chunk)
    for chunk in gone:
        stored.pop(chunk, None)
    assert list(OffsetMap.from_chunks({c: r for c, r in stored.items() if r})) == list(made)


def test_runs_that_follow_each_other_in_both_logs_are_one() -> None:
    made = OffsetMap()
    made.add([Run(0, 5, 3), Run(3, 8, 2), Run(5, 11, 1)])
    assert list(made) == [Run(0, 5, 5), Run(5, 11, 1)]
    with pytest.raises(ValueError, match="is not after"):
        made.add([Run(4, 20, 1)])
    with pytest.raises(ValueError, match="is not after"):
        made.add([Run(9, 11, 1)])


def test_a_map_with_a_missing_chunk_is_refused() -> None:
    with pytest.raises(ValueError, match="some are missing"):
        OffsetMap.from_chunks({0: [Run(0, 0, 1)], 2: [Run(9, 9, 1)]})


def test_a_cut_shortens_the_run_that_the_source_lost_in_part() -> None:
    made = built([(0, 0, 10), (2, 1, 10)])
    assert made.cut(15) == ({0}, set())
    assert list(made) == [Run(0, 0, 10), Run(12, 11, 3)]
    assert made.cut(0) == (set(), {0})
    assert made.last is None and made.to_target(3) is None


def test_a_consumer_is_never_sent_beyond_what_is_committed() -> None:
    made = built([(0, 0, 10), (0, 1, 10)])
    assert translated(7, 20, made) == 7
    assert translated(99, 20, made) == 21
    assert translated(99, 10, made) == 11  # the second run is of an open transaction


def test_a_mirror_back_uses_the_first_mirrors_map_and_passes_the_lost_tail() -> None:
    """Source offsets 0 to 3 came from the target's 10 to 13; its lost tail ends at 20."""
    reverse = OffsetMap()
    reverse.add([Run(10, 0, 4)])
    own = OffsetMap()
    assert translated(2, 99, own, reverse, 20) == 12
    assert translated(4, 99, own, reverse, 20) == 20
    own.add([Run(5, 21, 3)])
    assert translated(4, 99, own, reverse, 20) == 21
    assert translated(6, 99, own, reverse, 20) == 22
    assert translated(99, 99, own, reverse, 20) == 24
    # The first mirror's map cannot be read: only what is known for certain.
    assert translated(2, 99, own, None, 20) is None
    assert translated(6, 99, own, None, 20) == 22
    assert translated(9, 99, own, None, 20) is None


def test_the_first_mirror_goes_on_after_a_failback_over_what_the_other_one_wrote() -> None:
    """Source: 0 to 3 mirrored, 4 and 5 the lost tail, 6 and 7 from the target's 5 and 6, then 8."""
    own, reverse = OffsetMap(), OffsetMap()
    own.add([Run(0, 0, 4), Run(8, 8, 1)])
    reverse.add([Run(5, 6, 2)])
    found = [translated(offset, 9, own, reverse) for offset in range(10)]
    assert found == [0, 1, 2, 3, 5, 5, 5, 6, 8, 9]
