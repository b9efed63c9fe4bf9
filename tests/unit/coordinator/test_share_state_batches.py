"""Delivery states of offset ranges, against a table of single offsets."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from headwater_broker.coordinator.share_state.state_batches import combined, merge_into
from headwater_broker.replica.share.ports import StateBatch


def per_offset(batches: list[StateBatch], start: int) -> dict[int, tuple[int, int]]:
    """Offset -> the highest (count, state)."""
    out: dict[int, tuple[int, int]] = {}
    for b in batches:
        for offset in range(max(b.first_offset, start), b.last_offset + 1):
            rank = (b.delivery_count, b.delivery_state)
            out[offset] = max(out.get(offset, rank), rank)
    return out


def some_batches(random: Random, count: int) -> list[StateBatch]:
    firsts = [random.randrange(40) for _ in range(count)]
    return [
        StateBatch(
            first, first + random.randrange(9), random.choice((0, 2, 4)), random.randrange(3)
        )
        for first in firsts
    ]


@pytest.mark.parametrize("seed", range(60))
def test_merging_by_ranges_is_merging_by_offsets(seed: int) -> None:
    random = Random(seed)
    held: list[StateBatch] = []
    everything: list[StateBatch] = []
    start = -1
    for _ in range(8):
        new = some_batches(random, random.randrange(5))
        start = max(start, random.randrange(-1, 30))
        everything += new
        merge_into(held, new, start)
        assert per_offset(held, -1) == per_offset(everything, start)
        assert held == combined(everything, start)
        for before, after in pairwise(held):
            assert before.last_offset < after.first_offset
            is_neighbour = before.last_offset + 1 == after.first_offset
            same = (before.delivery_state, before.delivery_count) == (
                after.delivery_state,
                after.delivery_count,
            )
            assert not (is_neighbour and same)
