"""The city's world: the same from the same seed, plausible, with the faults that it names."""

from __future__ import annotations

import numpy as np
import pytest

from city.clock import BUCKET_MS, DAY_MS, DAY_START_MS, HOUR_MS, at_hour
from city.feeds import feeds_of, plate
from city.fields import (
    ABNORMAL,
    DATA_TOPICS,
    TOPICS,
    Alarm,
    FaceRecord,
    VehicleRecord,
    city_ms_of,
    city_text,
)
from city.videos import BRIGHT
from city.world import World, WorldPlan, make_world
from headwater.client.table import json_rows

SMALL = WorldPlan(seed=5, vehicles=30_000, faces=3_000)


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(SMALL)


def test_same_seed_makes_the_same_world(world: World) -> None:
    again = make_world(SMALL)
    assert (again.vehicles.sent_ms == world.vehicles.sent_ms).all()
    assert again.clones == world.clones
    assert again.deployment.cameras == world.deployment.cameras
    other = make_world(WorldPlan(seed=6, vehicles=30_000, faces=3_000))
    assert other.clones != world.clones


def test_half_of_the_cameras_are_smart_and_the_rest_are_behind_servers(world: World) -> None:
    cameras, servers = world.deployment.cameras, world.deployment.servers
    assert sum(c.server is None for c in cameras) == len(cameras) // 2
    assert len({c.ip for c in cameras} | {s.ip for s in servers}) == len(cameras) + len(servers)
    assert all(c.recognition_ip == c.ip for c in cameras if c.server is None)
    assert {c.recognition_ip for c in cameras if c.server} == {s.ip for s in servers}


def test_records_are_sent_in_order_after_their_capture_and_within_the_day(world: World) -> None:
    for truth in (world.vehicles, world.faces):
        assert (np.diff(truth.sent_ms) >= 0).all()
        assert truth.sent_ms[0] >= DAY_START_MS
        assert truth.sent_ms[-1] < DAY_START_MS + DAY_MS
        early = truth.sent_ms < truth.capture_ms
        assert set(truth.camera[early].tolist()) == {world.faults.fast_clock}


def test_only_planted_clones_are_too_fast(world: World) -> None:
    v = world.vehicles
    order = np.lexsort((v.capture_ms, v.who))
    order = order[~v.abnormal[order]]
    same = v.who[order][1:] == v.who[order][:-1]
    hours = np.diff(v.capture_ms[order]) / HOUR_MS
    km = world.deployment.distances_km[v.camera[order][1:], v.camera[order][:-1]]
    found = set(v.who[order][1:][same & (km > 160 * hours)].tolist())
    assert found == {pair.car for pair in world.clones}
    assert len(found) == 20


def test_the_leaf_makes_a_gap_that_shrinks_and_failing_devices_one_that_widens() -> None:
    v = make_world().vehicles
    bucket = (v.sent_ms - DAY_START_MS) // BUCKET_MS
    share = np.bincount(bucket, v.abnormal) / np.bincount(bucket)
    assert (share[18:24] > 0.06).all()
    assert share[22:24].mean() < share[18:20].mean()
    assert share[26:36].max() < 0.04
    assert share[114:118].min() > 0.05 > share[108:110].max()


def test_rush_hours_have_long_queues(world: World) -> None:
    v = world.vehicles
    queue_s = (v.sent_ms - v.capture_ms) / 1000
    hour = (v.sent_ms - DAY_START_MS) // HOUR_MS
    assert queue_s[hour == 8].mean() > 60 > 10 > queue_s[hour == 12].mean()


def test_three_of_the_failing_devices_share_a_server(world: World) -> None:
    failing = [world.deployment.cameras[n] for n in world.faults.failing]
    assert len({c.recognition_ip for c in failing[:3]}) == 1
    assert failing[3].server is None


def test_records_have_the_books_keys_and_can_be_read_back(world: World) -> None:
    vehicles, faces = feeds_of(world)
    rows = np.arange(200)
    table = vehicles.table(rows).combine_chunks()
    values = [v.as_py().encode() for v in json_rows(table, vehicles.columns)]
    assert '"车牌号码":"浙A' in values[0].decode()
    records = [VehicleRecord.from_wire(v) for v in values]
    assert [r.to_wire() for r in records] == values
    assert [r.is_abnormal for r in records] == world.vehicles.abnormal[rows].tolist()
    assert all(r.brand == ABNORMAL for r in records if r.is_abnormal)
    assert city_ms_of(records[7].capture_time) == world.vehicles.capture_ms[7]
    keys = table["key"].to_pylist()
    assert keys == [r.device_ip if r.is_abnormal else r.plate for r in records]
    face = json_rows(faces.table(rows).combine_chunks(), faces.columns)[3].as_py().encode()
    assert FaceRecord.from_wire(face).to_wire().startswith(b'{"record_id":"f0000003"')
    assert len(FaceRecord.from_wire(face).features) == 16


def test_plates_differ() -> None:
    assert len({plate(n) for n in range(30_000)}) == 30_000


def test_videos_show_their_objects_and_nothing_else(world: World) -> None:
    assert len(world.videos) == 6
    for video in world.videos:
        frames = video.frames()
        for thing in video.objects:
            assert 0 <= thing.first_frame < thing.last_frame < len(frames)
        bright = (frames == BRIGHT).any(axis=(1, 2))
        shown = {n for t in video.objects for n in range(t.first_frame, t.last_frame + 1)}
        assert set(np.flatnonzero(bright).tolist()) == shown


def test_instructions_are_not_data_and_data_topics_refuse_media() -> None:
    assert DATA_TOPICS == ("vehicles", "faces", "video-objects")
    for plan in TOPICS:
        assert (plan.configs.get("max.message.bytes") == "65536") is plan.is_data


def test_values_survive_the_wire_and_unknown_keys_are_left_out() -> None:
    alarm = Alarm("quality", "gap", city_text(at_hour(18.5)), "四 devices fail")
    assert Alarm.from_wire(alarm.to_wire()) == alarm
    assert Alarm.from_wire(alarm.to_wire().replace(b"{", b'{"later":1,', 1)) == alarm
    assert alarm.city_time == "2017-08-24 18:30:00"
