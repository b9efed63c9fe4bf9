"""The truth of tracks and counts agrees with the rules of the live service."""

from __future__ import annotations

import json

import numpy as np
import pytest

from city.clock import at_hour
from city.feeds import KEY, TIME, feeds_of
from city.fields import VEHICLES
from city.instructions import CountInstruction
from city.live_desk import LiveDesk, Report
from city.sightings import sighting_of
from city.watch_oracle import counts_differ, watched
from city.world import World, WorldPlan, make_world

UNTIL_H = 20.0


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(WorldPlan(vehicles=4_000, faces=1_500))


@pytest.fixture(scope="module")
def reports(world: World) -> list[Report]:
    """What the service's rules report for the whole day."""
    desk = LiveDesk()
    for one in watched(world):
        desk.take(one.instruction, {})
    desk.take(CountInstruction("all", "vehicle"), {})
    found: list[Report] = []
    for feed in feeds_of(world):
        table = feed.table(np.arange(len(feed.truth))).drop_columns([KEY, TIME])
        for offset, row in enumerate(table.to_pylist()):
            sighting = sighting_of(feed.topic, json.dumps(row).encode())
            assert sighting is not None
            found += desk.see(sighting, (feed.topic, 0), offset, 0)
    return found + list(desk.changed_counts())


def test_every_track_is_the_truths(world: World, reports: list[Report]) -> None:
    points = [json.loads(value) for topic, _, value in reports if topic == "tracks"]
    for one in watched(world):
        letter = "v" if one.topic == VEHICLES else "f"
        expected = {f"{letter}{row:07d}" for row in one.rows.tolist()}
        found = {p["record_id"] for p in points if p["instruction_id"] == one.name}
        assert found == expected and len(found) > 3, one.name


def test_counts_are_compared_both_ways(world: World, reports: list[Report]) -> None:
    told = [json.loads(value) for topic, _, value in reports if topic == "statistics"]
    found = {one["bucket_ms"]: one["counts"] for one in told}
    compared, wrong = counts_differ(world, found, UNTIL_H)
    assert compared > 1_000 and wrong == 0
    early = min(found)
    some = next(iter(found[early]))
    missing = {**found, early: {k: n for k, n in found[early].items() if k != some}}
    assert counts_differ(world, missing, UNTIL_H) == (compared, 1)
    wrongly = {**found, early: {**found[early], "nowhere": 1}}
    assert counts_differ(world, wrongly, UNTIL_H) == (compared + 1, 1)
    late = {**found, at_hour(UNTIL_H): {"nowhere": 1}}
    assert counts_differ(world, late, UNTIL_H) == (compared, 0)
