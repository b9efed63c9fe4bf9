"""What the pages show of each record, and what of one that is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from city.clock import DAY_START_MS
from city.fields import (
    ALARMS,
    STATISTICS,
    STATISTICS_INSTRUCTIONS,
    TRACKS,
    VIDEO_OBJECTS,
    WATCH_INSTRUCTIONS,
    Alarm,
)
from city.instructions import CountInstruction, StopInstruction, WatchInstruction
from city.web.state import ALARMS_KEPT, CITY_FLOW, POINTS_SHOWN, CityState

WANTED = WatchInstruction("w1", traits=(("plate", "浙A00017"),))


def point(number: int, at_ms: int) -> bytes:
    told = {"kind": "point", "track_id": f"w1/v{number}", "instruction_id": "w1"}
    return json.dumps({**told, "capture_ms": at_ms, "checkpoint_id": "c"}).encode()


def count(identity: str, bucket_ms: int, counts: dict[str, int]) -> bytes:
    told = {"kind": "count", "instruction_id": identity, "bucket_ms": bucket_ms, "counts": counts}
    return json.dumps(told).encode()


def test_a_track_grows_in_order_of_time_and_has_each_point_once() -> None:
    state = CityState()
    assert state.apply(WATCH_INSTRUCTIONS, WANTED.value()) == {"tracks", "track:w1"}
    taken = json.dumps({"kind": "taken", "instruction_id": "w1", "positions": {}}).encode()
    assert state.apply(TRACKS, taken) == {"tracks", "track:w1"}
    assert state.apply(TRACKS, point(1, 2000)) == {"tracks", "track:w1", "clock"}
    assert state.apply(TRACKS, point(0, 1000)) == {"tracks", "track:w1"}
    assert state.apply(TRACKS, point(0, 1000)) == set()
    body = state.body("track:w1")
    assert [p["track_id"] for p in body["points"]] == ["w1/v0", "w1/v1"]
    assert (body["total"], body["is_taken"], body["is_active"]) == (2, True, True)
    assert state.body("clock") == 2000
    state.apply(WATCH_INSTRUCTIONS, StopInstruction("w1").value())
    assert not state.body("tracks")["w1"]["is_active"]


def test_a_long_track_keeps_its_newest_points_and_its_total() -> None:
    state = CityState()
    state.apply(WATCH_INSTRUCTIONS, WANTED.value())
    for n in range(POINTS_SHOWN + 10):
        state.apply(TRACKS, point(n, n))
    body = state.body("track:w1")
    assert (body["total"], len(body["points"])) == (POINTS_SHOWN + 10, POINTS_SHOWN)
    assert body["points"][0]["track_id"] == "w1/v10"


def test_the_map_shows_the_last_whole_interval() -> None:
    state = CityState()
    asked = CountInstruction(CITY_FLOW, "vehicle")
    assert state.apply(STATISTICS_INSTRUCTIONS, asked.value()) == {"counts"}
    state.apply(STATISTICS, count(CITY_FLOW, DAY_START_MS, {"a": 3, "b": 4}))
    changed = state.apply(STATISTICS, count(CITY_FLOW, DAY_START_MS + 600_000, {"a": 1}))
    assert changed == {"flow", "clock"}
    body = state.body("flow")
    assert (body["bucket_ms"], body["counts"]) == (DAY_START_MS, {"a": 3, "b": 4})
    assert body["totals"] == [[DAY_START_MS, 7], [DAY_START_MS + 600_000, 1]]
    assert state.body("counts") == {}  # the map's own instruction is not listed


def test_a_count_that_was_stopped_is_not_shown() -> None:
    state = CityState()
    state.apply(STATISTICS_INSTRUCTIONS, CountInstruction("c1", "face", "here", 5).value())
    state.apply(STATISTICS, count("c1", 0, {"here": 2}))
    assert state.body("counts")["c1"]["totals"] == [[0, 2]]
    assert state.apply(STATISTICS_INSTRUCTIONS, StopInstruction("c1").value()) == {"counts"}
    assert state.body("counts") == {}


def test_open_alarms_come_first_and_a_closing_closes() -> None:
    state = CityState()
    for key, time in (("a", "2017-08-24 08:00:00"), ("b", "2017-08-24 09:00:00")):
        state.apply(ALARMS, Alarm("latency", key, time, f"alarm {key}").to_wire())
    state.apply(ALARMS, Alarm("latency", "b", "2017-08-24 10:00:00", "over", False).to_wire())
    rows = state.body("alarms")
    assert [(r["key"], r["is_open"]) for r in rows] == [("a", True), ("b", False)]
    for n in range(2 * ALARMS_KEPT):
        state.apply(ALARMS, Alarm("clones", str(n), "2017-08-24 11:00:00", "x").to_wire())
    assert len(state.body("alarms")) == ALARMS_KEPT


@pytest.mark.parametrize(
    ("topic", "told"),
    [
        (TRACKS, None),
        (TRACKS, b"\xff"),
        (TRACKS, b"[]"),
        (TRACKS, b'{"kind": "point"}'),
        (TRACKS, b'{"kind": "point", "instruction_id": "nobody"}'),
        (STATISTICS, b'{"kind": "count", "instruction_id": "c", "bucket_ms": "x"}'),
        (STATISTICS, b'{"kind": "latency"}'),
        (STATISTICS, b'{"kind": "ranking", "rows": 7}'),
        (ALARMS, b"{}"),
        (WATCH_INSTRUCTIONS, b'{"action": "hunt"}'),
        (VIDEO_OBJECTS, b"7"),
    ],
)
def test_what_is_no_record_changes_nothing(topic: str, told: bytes | None) -> None:
    state = CityState()
    assert state.apply(topic, told) == set()
    sections: list[Any] = [state.body(s) for s in ("tracks", "alarms", "videos", "latency")]
    assert sections == [{}, [], [], []]
