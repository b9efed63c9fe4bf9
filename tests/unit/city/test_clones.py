"""Cloned plates: which hours are judged when, and the truth of a planted world."""

from __future__ import annotations

from datetime import timedelta

import pytest

from city.clones import CloneTruth, clone_text, closed_hours
from city.lookup import checkpoints_of
from city.rounds import BUCKETS
from city.world import WorldPlan, make_world


@pytest.mark.parametrize(
    ("end_bucket", "hours"), [(0, 0), (6, 0), (8, 0), (9, 1), (14, 1), (15, 2), (BUCKETS, 24)]
)
def test_an_hour_is_judged_half_an_hour_after_its_end(end_bucket: int, hours: int) -> None:
    assert closed_hours(end_bucket) == hours


def test_every_planted_clone_is_among_the_pairs() -> None:
    world = make_world(WorldPlan(vehicles=20_000, faces=100))
    truth = CloneTruth.of(world)
    assert truth.planted == len(world.clones) == truth.planted_in(list(truth.pairs))
    assert truth.planted_in([]) == 0


def test_an_alarm_names_both_places() -> None:
    first, second, *_ = checkpoints_of(make_world(WorldPlan(vehicles=500, faces=10)).deployment)
    text = clone_text("浙A00017", first, second, timedelta(seconds=120), 21.4)
    assert text == f"浙A00017: {first.place}, and 120 s later {second.place}, 21 km away"
