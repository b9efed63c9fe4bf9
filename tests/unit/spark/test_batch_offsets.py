"""Micro-batches and splits: positions, limits, data loss, the tier boundary."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater_spark.source.batch_limits import byte_shares, is_too_small, limit_ends, limit_offsets
from headwater_spark.source.batch_offsets import plan_again, plan_first_batch, plan_next_batch
from headwater_spark.source.data_loss import gone_topics, truncated_partitions
from headwater_spark.source.input_partitions import splits
from headwater_spark.source.positions import CurrentOffsets, Position
from headwater_spark.source.tier_boundary import COLD_OFFSETS_MIN, Boundary

A0, A1, B0 = ("a", 0), ("a", 1), ("b", 0)
IDS = {"a": "id-a"}


def current(earliest: dict, latest: dict, ids: dict | None = None) -> CurrentOffsets:
    return CurrentOffsets(IDS if ids is None else ids, earliest, latest)


def test_batch_0_pins_the_start() -> None:
    plan = plan_first_batch({A0: 3, A1: 0}, current({A0: 0, A1: 0}, {A0: 10, A1: 0}))
    assert plan.position == Position({A0: 3, A1: 0}, {A0: 10, A1: 0}, IDS)
    assert plan.losses == ()


def test_a_start_outside_the_log_is_a_loss() -> None:
    plan = plan_first_batch({A0: 3}, current({A0: 5}, {A0: 10}))
    assert plan.position is not None and plan.position.start == {A0: 5}
    assert "starting offset 3" in plan.losses[0]


def test_nothing_new_is_none() -> None:
    previous = Position({A0: 0}, {A0: 10}, IDS)
    assert plan_next_batch(previous, current({A0: 0}, {A0: 10})).position is None


def test_the_next_batch_starts_where_the_last_one_ended() -> None:
    previous = Position({A0: 0}, {A0: 10}, IDS)
    plan = plan_next_batch(previous, current({A0: 0}, {A0: 15}))
    assert plan.position == Position({A0: 10}, {A0: 15}, IDS)


def test_a_new_partition_is_pinned_even_while_empty() -> None:
    previous = Position({A0: 0}, {A0: 10}, IDS)
    plan = plan_next_batch(previous, current({A0: 0, A1: 4}, {A0: 10, A1: 4}))
    assert plan.position == Position({A0: 10, A1: 4}, {A0: 10, A1: 4}, IDS)
    assert plan.losses == ()


def test_aged_out_offsets_are_a_loss() -> None:
    previous = Position({A0: 0}, {A0: 10}, IDS)
    plan = plan_next_batch(previous, current({A0: 12}, {A0: 15}))
    assert plan.position is not None and plan.position.start == {A0: 12}
    assert plan.losses == ("a-0: offsets 10 to 11 have aged out",)


def test_a_recreated_topic_starts_anew() -> None:
    previous = Position({A0: 0}, {A0: 10}, IDS)
    plan = plan_next_batch(previous, current({A0: 0}, {A0: 4}, {"a": "other"}))
    assert plan.position == Position({A0: 0}, {A0: 4}, {"a": "other"})
    assert "created again" in plan.losses[0]


def test_a_deleted_topic_is_a_loss() -> None:
    previous = Position({A0: 0, B0: 0}, {A0: 1, B0: 1}, {"a": "id-a", "b": "id-b"})
    plan = plan_next_batch(previous, current({A0: 0}, {A0: 1}))
    assert "topic b is gone" in plan.losses


def test_a_gone_topic_keeps_its_position_until_it_is_known_again() -> None:
    ids = {"a": "id-a", "b": "id-b"}
    previous = Position({A0: 0, B0: 0}, {A0: 1, B0: 5}, ids)
    without = plan_next_batch(previous, current({A0: 0}, {A0: 3})).position
    assert without == Position({A0: 1, B0: 5}, {A0: 3, B0: 5}, ids)
    same = plan_next_batch(without, current({A0: 0, B0: 0}, {A0: 3, B0: 9}, ids))
    assert same.position == Position({A0: 3, B0: 5}, {A0: 3, B0: 9}, ids) and not same.losses
    other = {"a": "id-a", "b": "id-new"}
    anew = plan_next_batch(without, current({A0: 0, B0: 0}, {A0: 3, B0: 2}, other))
    assert anew.position == Position({A0: 3, B0: 0}, {A0: 3, B0: 2}, other)
    assert "created again" in anew.losses[0]


def test_an_idle_batch_of_a_gone_topic_is_no_batch() -> None:
    previous = Position({A0: 0, B0: 0}, {A0: 1, B0: 5}, {"a": "id-a", "b": "id-b"})
    plan = plan_next_batch(previous, current({A0: 0}, {A0: 1}))
    assert plan.position is None and plan.losses == ("topic b is gone",)


def test_a_partition_that_metadata_does_not_list_keeps_its_position() -> None:
    previous = Position({A0: 0, A1: 0}, {A0: 10, A1: 7}, IDS)
    plan = plan_next_batch(previous, current({A0: 0}, {A0: 12}))
    assert plan.position == Position({A0: 10, A1: 7}, {A0: 12, A1: 7}, IDS)
    assert plan.losses == ()


def test_what_the_options_no_longer_name_is_dropped_as_a_loss() -> None:
    previous = Position({A0: 0, B0: 0}, {A0: 1, B0: 5}, {"a": "id-a", "b": "id-b"})
    now = current({A0: 0}, {A0: 1})
    only_a = lambda topic, _partition: topic == "a"  # noqa: E731
    plan = plan_next_batch(previous, now, only_a)
    assert plan.position == Position({A0: 1}, {A0: 1}, IDS)
    assert plan.losses == ("b-0: in the checkpoint, but the options no longer name it",)
    assert gone_topics(previous, now) == ("b",)
    assert gone_topics(previous, now, only_a) == ()


def test_a_logged_batch_that_the_log_still_has_is_planned_as_it_was() -> None:
    logged = Position({A0: 3, A1: 0}, {A0: 10, A1: 0}, IDS)
    plan = plan_again(logged, current({A0: 0, A1: 0}, {A0: 12, A1: 4}))
    assert plan.position == logged and plan.losses == ()


@pytest.mark.parametrize(
    ("now", "left", "words"),
    [
        (current({A0: 5}, {A0: 12}), ({A0: 5}, {A0: 10}), "the log has 5 to 11"),
        (current({A0: 0}, {A0: 6}), ({A0: 3}, {A0: 6}), "the log has 0 to 5"),
        (current({A0: 0}, {A0: 2}), ({A0: 3}, {A0: 3}), "the log has 0 to 1"),
        (current({A0: 0}, {A0: 12}, {"a": "new"}), ({A0: 3}, {A0: 3}), "now has id new"),
        (current({}, {}, {}), ({A0: 3}, {A0: 3}), "it is gone"),
    ],
)
def test_what_a_logged_batch_has_lost(
    now: CurrentOffsets, left: tuple[dict, dict], words: str
) -> None:
    plan = plan_again(Position({A0: 3}, {A0: 10}, IDS), now)
    assert plan.position == Position(*left, IDS)
    assert "a-0: the checkpoint planned offsets 3 to 9" in plan.losses[0]
    assert words in plan.losses[0]


def test_a_small_batch_may_wait_but_never_with_a_new_partition() -> None:
    previous = Position({A0: 0}, {A0: 10}, IDS)
    assert is_too_small(Position({A0: 10}, {A0: 14}, IDS), previous, 5)
    assert not is_too_small(Position({A0: 10}, {A0: 15}, IDS), previous, 5)
    assert not is_too_small(Position({A0: 10, A1: 0}, {A0: 11, A1: 0}, IDS), previous, 5)
    assert not is_too_small(Position({A0: 10}, {A0: 11}, {"a": "new"}), previous, 5)


def test_a_leader_that_lags_never_moves_a_position_back() -> None:
    previous = Position({A0: 0}, {A0: 10}, IDS)
    now = current({A0: 0}, {A0: 8})
    assert plan_next_batch(previous, now).position is None
    assert "ends at 8" in truncated_partitions(previous, now)[0]


def test_limit_is_shared_by_backlog_and_starves_nobody() -> None:
    position = Position({A0: 0, A1: 0}, {A0: 1_000_000, A1: 3}, IDS)
    assert limit_offsets(position, 1000).end == {A0: 999, A1: 1}


def test_limit_leaves_a_small_backlog_alone() -> None:
    position = Position({A0: 5}, {A0: 9}, IDS)
    assert limit_offsets(position, 4) is position


def test_limit_ends_never_goes_back_nor_beyond() -> None:
    position = Position({A0: 5, A1: 5, B0: 5}, {A0: 9, A1: 9, B0: 9}, IDS)
    assert limit_ends(position, {A0: 7, A1: 2}).end == {A0: 7, A1: 5, B0: 5}


def test_byte_shares_follow_the_backlog() -> None:
    position = Position({A0: 0, A1: 0, B0: 5}, {A0: 75, A1: 25, B0: 5}, IDS)
    assert byte_shares(position, 1000) == {A0: 750, A1: 250}


def test_cut_at_the_tier_boundary() -> None:
    position = Position({A0: 10}, {A0: 100}, IDS)
    parts = splits(position, {A0: Boundary(local_start=50, tiered_start=0, tiered_end=80)})
    assert [(s.start_offset, s.end_offset, s.cold) for s in parts] == [
        (10, 80, True),
        (80, 100, False),
    ]


def test_a_short_tiered_range_that_brokers_have_is_fetched() -> None:
    position = Position({A0: 10}, {A0: 100}, IDS)
    parts = splits(position, {A0: Boundary(local_start=0, tiered_start=0, tiered_end=80)})
    assert [(s.start_offset, s.end_offset, s.cold) for s in parts] == [(10, 100, False)]


def test_a_long_tiered_range_is_read_from_the_table() -> None:
    end = COLD_OFFSETS_MIN + 10
    parts = splits(Position({A0: 10}, {A0: end}, IDS), {A0: Boundary(0, 0, end)})
    assert [s.cold for s in parts] == [True]


def test_what_the_table_does_not_reach_back_to_is_fetched() -> None:
    parts = splits(Position({A0: 0}, {A0: 100}, IDS), {A0: Boundary(90, 50, 95)})
    assert [s.cold for s in parts] == [False]


def test_min_partitions_and_max_records() -> None:
    position = Position({A0: 0, A1: 0}, {A0: 300, A1: 100}, IDS)
    assert len(splits(position, {}, min_partitions=8)) == 8
    parts = splits(position, {}, max_records=100)
    assert [s.offsets for s in parts] == [100, 100, 100, 100]


_OFFSETS = st.integers(0, 2_000_000)


@given(
    start=_OFFSETS,
    size=st.integers(0, 1_000_000),
    local=_OFFSETS,
    tiered=st.tuples(_OFFSETS, _OFFSETS),
    wanted=st.integers(1, 20),
    most=st.integers(1000, 2_000_000),
)
def test_splits_cover_exactly_the_range(
    start: int, size: int, local: int, tiered: tuple[int, int], wanted: int, most: int
) -> None:
    boundary = Boundary(local, min(tiered), max(tiered))
    position = Position({A0: start}, {A0: start + size}, IDS)
    parts = splits(position, {A0: boundary}, min_partitions=wanted, max_records=most)
    at = start
    for part in parts:
        assert part.start_offset == at and part.offsets > 0
        assert part.offsets <= most
        if part.cold:
            assert boundary.tiered_start <= part.start_offset
            assert part.end_offset <= boundary.tiered_end
        at = part.end_offset
    assert at == start + size


def test_a_gap_is_no_split() -> None:
    """Or millions of splits would have no record, and one all of them."""
    gap = 1 << 33
    end = 400 + gap
    runs = ((0, 300), (300 + gap, end))
    boundary = Boundary(local_start=end, tiered_start=0, tiered_end=end, runs=runs)
    position = Position({A0: 100}, {A0: end + 50}, IDS)
    parts = splits(position, {A0: boundary}, max_records=100)
    assert [(s.start_offset, s.end_offset, s.cold) for s in parts] == [
        (100, 200, True),
        (200, 300, True),
        (300 + gap, end, True),
        (end, end + 50, False),
    ]
    assert len(splits(position, {A0: boundary}, min_partitions=7)) in range(6, 9)
    within = splits(Position({A0: 350}, {A0: 350 + gap // 2}, IDS), {A0: boundary})
    assert [(s.start_offset, s.end_offset) for s in within] == [(350, 350 + gap // 2)]
