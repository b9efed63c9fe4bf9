"""ISR, watermark and truncation rules, over all small inputs."""

from __future__ import annotations

from itertools import product
from math import inf

import pytest

from headwater_broker.replica import isr
from headwater_broker.replica.high_watermark import (
    follower_high_watermark,
    leader_high_watermark,
    loaded_high_watermark,
)
from headwater_broker.replica.isr import FollowerProgress
from headwater_broker.replica.truncation import (
    UNDEFINED,
    EpochEnd,
    divergence,
    truncation,
)


def at(end: int, replica_id: int = 2) -> FollowerProgress:
    row = FollowerProgress(replica_id)
    row.log_end_offset = end
    return row


def test_a_follower_at_the_leaders_end_is_caught_up_now() -> None:
    row = FollowerProgress(2)
    row.fetched(10, 10, 5.0)
    assert row.caught_up_at == 5.0
    assert row.caught_up(10, 1000.0, 1.0)  # idle topic: nobody leaves for want of writes
    assert not row.caught_up(11, 7.0, 1.0)


def test_a_follower_that_reaches_what_the_leader_had_was_caught_up_at_its_last_fetch() -> None:
    row = FollowerProgress(2)
    row.fetched(0, 10, 1.0)
    assert row.caught_up_at == -inf
    row.fetched(10, 20, 2.0)
    assert row.caught_up_at == 1.0
    row.fetched(15, 30, 3.0)
    assert row.caught_up_at == 1.0  # 15 < 20: it falls behind
    assert not row.caught_up(30, 3.0, 1.5)


def test_maximal_isr_is_both() -> None:
    assert isr.maximal((1, 2), (1, 2, 3)) == {1, 2, 3}
    assert isr.maximal((1, 2), (1,)) == {1, 2}
    assert isr.maximal((1, 2), None) == {1, 2}


@pytest.mark.parametrize(("end", "hw", "start"), list(product(range(-1, 4), range(4), range(4))))
def test_joining_needs_the_high_watermark_and_the_epoch_start(
    end: int, hw: int, start: int
) -> None:
    expected = end != -1 and end >= max(hw, start)
    assert isr.may_join(at(end), hw, start) is expected


def test_shrinking_never_touches_the_leader_and_never_empties() -> None:
    rows = {2: at(0), 3: at(5)}
    assert isr.out_of_sync((1, 2, 3), rows, 5, now=100.0, lag_max_s=1.0) == (2,)
    assert isr.shrunk((1, 2, 3), (2,)) == (1, 3)
    assert isr.expanded((1, 3), 2) == (1, 3, 2)
    assert isr.expanded((1, 3), 3) == (1, 3)
    with pytest.raises(ValueError, match="empty"):
        isr.shrunk((2,), (2,))


@pytest.mark.parametrize(
    ("size", "minimum", "replicas", "short"),
    [(1, 1, 1, False), (1, 2, 3, True), (2, 2, 3, False), (1, 2, 1, False), (2, 3, 2, False)],
)
def test_min_insync_replicas_counts_only_what_exists(
    size: int, minimum: int, replicas: int, short: bool
) -> None:
    assert isr.below_min_isr(size, minimum, replicas) is short


@pytest.mark.parametrize(
    ("current", "leader_end", "ends"),
    list(product(range(4), range(4), product(range(-1, 4), repeat=2))),
)
def test_leader_high_watermark_is_the_lowest_end_and_never_falls(
    current: int, leader_end: int, ends: tuple[int, int]
) -> None:
    mark = leader_high_watermark(current, leader_end, [at(end) for end in ends])
    assert mark == max(current, min(leader_end, *ends))


@pytest.mark.parametrize(("current", "leader", "end"), list(product(range(5), repeat=3)))
def test_follower_high_watermark(current: int, leader: int, end: int) -> None:
    assert follower_high_watermark(current, leader, end) == max(current, min(leader, end))


def test_loaded_high_watermark_lies_in_the_log() -> None:
    assert loaded_high_watermark(5, 0, 3) == 3
    assert loaded_high_watermark(1, 2, 3) == 2
    assert loaded_high_watermark(0, 0, 9) == 0


@pytest.mark.parametrize(
    ("leader", "asked_epoch", "asked_offset", "diverges"),
    [
        (EpochEnd(3, 10), 3, 10, False),
        (EpochEnd(3, 10), 3, 5, False),
        (EpochEnd(3, 10), 3, 11, True),  # its epoch 3 is longer than the leader's
        (EpochEnd(2, 8), 3, 8, True),  # the leader has no epoch 3
        (EpochEnd(2, 8), 3, 5, True),
        (UNDEFINED, -1, 4, False),  # an empty log, or one of before epochs
    ],
)
def test_divergence(leader: EpochEnd, asked_epoch: int, asked_offset: int, diverges: bool) -> None:
    found = divergence(leader, asked_epoch, asked_offset)
    assert (found == leader) if diverges else (found is None)


@pytest.mark.parametrize(
    ("told", "own", "own_end", "hw", "offset", "final"),
    [
        # both know the epoch: the lower end
        (EpochEnd(2, 8), EpochEnd(2, 10), 12, 5, 8, True),
        (EpochEnd(2, 10), EpochEnd(2, 8), 12, 5, 8, True),
        # the follower does not know it: cut to its epoch below, ask again
        (EpochEnd(3, 9), EpochEnd(1, 6), 12, 5, 6, False),
        (EpochEnd(3, 4), EpochEnd(1, 6), 12, 5, 4, False),
        # the follower knows no epoch that old
        (EpochEnd(1, 4), UNDEFINED, 12, 5, 4, True),
        # the leader can tell nothing: keep what is committed
        (UNDEFINED, EpochEnd(2, 10), 12, 5, 5, True),
        (UNDEFINED, EpochEnd(2, 10), 3, 5, 3, True),
    ],
)
def test_truncation(
    told: EpochEnd, own: EpochEnd, own_end: int, hw: int, offset: int, final: bool
) -> None:
    cut = truncation(told, own_end, hw, lambda _: own)
    assert (cut.offset, cut.final) == (offset, final)
