"""The live service's rules: matches, counts, what an instruction holds for, restarts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from city.clock import DAY_START_MS
from city.fields import ABNORMAL, FACES, STATISTICS, TRACKS, VEHICLES
from city.instructions import CountInstruction, StopInstruction, WatchInstruction
from city.live_desk import LiveDesk, Report
from city.sightings import sighting_of
from city_records import HERE, THERE, face, vehicle

PLACE = (VEHICLES, 0)
WANTED = WatchInstruction("w1", traits=(("plate", "浙A00017"),))
EVERY = CountInstruction("c1", "vehicle")


def see(desk: LiveDesk, offset: int, value: bytes, topic: str = VEHICLES) -> list[Report]:
    sighting = sighting_of(topic, value)
    assert sighting is not None
    return list(desk.see(sighting, (topic, 0), offset, 1_000 + offset))


def told(reports: list[Report] | Iterator[Report]) -> list[dict[str, Any]]:
    return [json.loads(value) for _, _, value in reports]


def test_a_track_has_each_capture_of_the_plate_in_order_and_no_other() -> None:
    desk = LiveDesk()
    (taken,) = told(desk.take(WANTED, {PLACE: 0}))
    assert taken == {"kind": "taken", "instruction_id": "w1", "positions": {"vehicles-0": 0}}
    reports: list[Report] = []
    for n in range(103):
        is_wanted = n in (10, 50, 90)
        value = vehicle(n, "浙A00017" if is_wanted else f"浙B{n:05}", at_s=n, checkpoint=HERE)
        reports += see(desk, n, value)
    points = told(reports)
    assert [r[:2] for r in reports] == [(TRACKS, "w1")] * 3
    assert [p["capture_ms"] - DAY_START_MS for p in points] == [10_000, 50_000, 90_000]
    assert {p["checkpoint_id"] for p in points} == {HERE}
    assert [p["sent_ms"] for p in points] == [1_010, 1_050, 1_090]
    assert points[0]["track_id"] == "w1/v10"


def test_an_instruction_holds_for_the_records_after_it() -> None:
    desk = LiveDesk()
    assert see(desk, 0, vehicle(0, "浙A00017")) == []
    desk.take(WANTED, {PLACE: 1})
    assert len(see(desk, 1, vehicle(1, "浙A00017"))) == 1
    desk.take(StopInstruction("w1"), {PLACE: 2})
    assert see(desk, 2, vehicle(2, "浙A00017")) == []
    assert desk.active == []


@pytest.mark.parametrize(
    ("traits", "found"),
    [
        ((("body_colour", "红色"),), 1),
        ((("body_colour", "红色"), ("brand", "Jeep")), 1),
        ((("body_colour", "红色"), ("brand", "Ford")), 0),
        ((("body_colour", "红色"), ("plate", "浙A00001")), 1),
        ((("body_colour", "黑色"), ("plate", "浙A00001")), 0),
    ],
)
def test_every_trait_has_to_match(traits: tuple[tuple[str, str], ...], found: int) -> None:
    desk = LiveDesk()
    desk.take(WatchInstruction("w2", traits=traits), {})
    assert len(see(desk, 0, vehicle(0, colour="红色"))) == found


def test_a_person_is_followed_by_name_and_by_face() -> None:
    desk = LiveDesk()
    other = (0.0, 1.0) + (0.0,) * 14
    desk.take(WatchInstruction("by-name", person="P000001"), {})
    desk.take(WatchInstruction("by-face", face=(2.0, 0.1) + (0.0,) * 14), {})
    assert [r[1] for r in see(desk, 0, face(0), FACES)] == ["by-name", "by-face"]
    assert see(desk, 1, face(1, "P000002", features=other), FACES) == []


def test_an_abnormal_record_matches_nothing_and_counts_as_a_passage() -> None:
    desk = LiveDesk()
    desk.take(WatchInstruction("w", traits=(("plate", ABNORMAL),)), {})
    desk.take(EVERY, {})
    assert see(desk, 0, vehicle(0, ABNORMAL)) == []
    assert told(desk.changed_counts())[0]["counts"] == {HERE: 1}


def test_counts_per_checkpoint_and_interval() -> None:
    desk = LiveDesk()
    desk.take(EVERY, {})
    desk.take(CountInstruction("c2", "vehicle", THERE, 60), {})
    for n, (at_s, place) in enumerate([(0, HERE), (599, THERE), (600, HERE), (30, HERE)]):
        see(desk, n, vehicle(n, at_s=at_s, checkpoint=place))
    reports = list(desk.changed_counts())
    assert [r[:2] for r in reports] == [(STATISTICS, "c1"), (STATISTICS, "c1"), (STATISTICS, "c2")]
    found = [(r["bucket_ms"] - DAY_START_MS, r["counts"]) for r in told(reports)]
    assert found == [(0, {HERE: 2, THERE: 1}), (600_000, {HERE: 1}), (0, {THERE: 1})]
    assert list(desk.changed_counts()) == []
    see(desk, 4, vehicle(4, at_s=601))
    (again,) = told(desk.changed_counts())
    assert again["counts"] == {HERE: 2}


def test_a_record_that_is_read_again_is_neither_counted_nor_reported_again() -> None:
    """The service goes back when an instruction is to hold from an earlier time on."""
    desk = LiveDesk()
    desk.take(WANTED, {PLACE: 0})
    desk.take(EVERY, {PLACE: 0})
    values = [vehicle(n, "浙A00017", at_s=n) for n in range(3)]
    assert len([r for n in range(3) for r in see(desk, n, values[n])]) == 3
    desk.take(CountInstruction("c2", "vehicle", since_ms=1_001), {PLACE: 0})
    assert [r for n in range(3) for r in see(desk, n, values[n])] == []
    counts = {r["instruction_id"]: r["counts"] for r in told(desk.changed_counts())}
    assert counts == {"c1": {HERE: 3}, "c2": {HERE: 2}}


def test_records_that_were_sent_before_an_instructions_time_are_left_out() -> None:
    """Also when the look-up by time leads to an earlier offset (`see` sends them at 1,000 + n)."""
    desk = LiveDesk()
    desk.take(WatchInstruction("w", traits=WANTED.traits, since_ms=1_002), {PLACE: 0})
    values = [vehicle(n, "浙A00017", at_s=n) for n in range(4)]
    points = told([r for n in range(4) for r in see(desk, n, values[n])])
    assert [p["record_id"] for p in points] == ["v2", "v3"]


def test_a_restarted_service_goes_back_and_reports_only_what_is_missing() -> None:
    first = LiveDesk()
    kept = first.take(WANTED, {PLACE: 5}) + first.take(EVERY, {PLACE: 3})
    values = {n: vehicle(n, "浙A00017", at_s=n) for n in range(3, 9)}
    for n in range(3, 7):
        kept += see(first, n, values[n])
    second = LiveDesk()
    for _, _, value in kept:
        second.remember(value)
    for one in (WANTED, EVERY):
        assert second.take(one, {PLACE: 9}, recalled=True) == []
    assert second.first_positions() == {PLACE: 3}
    points = told([r for n in range(3, 9) for r in see(second, n, values[n])])
    assert [p["record_id"] for p in points] == ["v7", "v8"]
    assert told(second.changed_counts())[0]["counts"] == {HERE: 6}


def test_the_same_instruction_again_changes_nothing_and_another_one_begins_anew() -> None:
    desk = LiveDesk()
    desk.take(EVERY, {PLACE: 0})
    see(desk, 0, vehicle(0))
    assert desk.take(EVERY, {PLACE: 1}) == []
    see(desk, 1, vehicle(1))
    assert told(desk.changed_counts())[0]["counts"] == {HERE: 2}
    (taken,) = told(desk.take(CountInstruction("c1", "vehicle", minutes=60), {PLACE: 2}))
    assert taken["positions"] == {"vehicles-0": 2}
    see(desk, 2, vehicle(2))
    assert told(desk.changed_counts())[0]["counts"] == {HERE: 1}


@pytest.mark.parametrize("value", [None, b"", b"{}", b"[]", b"\xff", b"17", b'{"record_id": 1}'])
def test_what_is_no_record_of_a_device_is_passed_over(value: bytes | None) -> None:
    assert sighting_of(VEHICLES, value) is None
    assert sighting_of(FACES, value) is None


def test_a_face_of_another_length_is_passed_over() -> None:
    assert sighting_of(FACES, face(0, features=(1.0,))) is None
