"""The city's Spark jobs without a cluster: the micro-batch match, cloned plates, a video's job."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import functions as f

from city.clock import DAY_MS, DAY_START_MS
from city.clones import CloneTruth, clone_pairs
from city.feeds import KEY, TIME, feeds_of, person, plate
from city.fields import VEHICLE_WIRE, VEHICLES
from city.instructions import WatchInstruction
from city.sightings import sighting_of
from city.video import analyse, save_clip
from city.watch import WatchList
from city.watch_batch import points
from city.world import World, WorldPlan, make_world
from integration.spark_sessions import spark_session

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

JOBS = str(Path(__file__).resolve().parents[2] / "jobs")


@pytest.fixture(scope="module")
def world() -> World:
    return make_world(WorldPlan(vehicles=6_000, faces=2_000))


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    former = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (JOBS, former)))
    try:
        with spark_session("local[2]", delta=False) as session:
            yield session
    finally:
        os.environ["PYTHONPATH"] = former


def records(world: World) -> list[tuple[str, int, int, bytes]]:
    """Topic, partition, offset, value of every record of the world."""
    rows = []
    for feed in feeds_of(world):
        table = feed.table(np.arange(len(feed.truth))).drop_columns([KEY, TIME])
        for offset, row in enumerate(table.to_pylist()):
            rows.append((feed.topic, 0, offset, json.dumps(row, ensure_ascii=False).encode()))
    return rows


def test_the_micro_batch_matches_what_the_service_matches(spark: Any, world: World) -> None:
    face = feeds_of(world)[1].features([7])[0]
    wanted = [
        WatchInstruction("plate", traits=(("plate", plate(world.taxis[0])),)),
        WatchInstruction("looks", traits=(("body_colour", "红色"), ("brand", "Jeep"))),
        WatchInstruction("person", person=person(int(world.faces.who[3]))),
        WatchInstruction("face", face=tuple(map(float, face))),
    ]
    watching = WatchList()
    for one in wanted:
        watching.apply(one)
    rows = records(world)
    expected = set()
    for topic, _, _, value in rows:
        sighting = sighting_of(topic, value)
        assert sighting is not None
        for one in watching.matches(sighting):
            expected.add(f"{one.instruction_id}/{sighting.record_id}")
    schema = "topic STRING, partition INT, offset BIGINT, value BINARY"
    found = points(spark.createDataFrame(rows, schema), wanted).collect()
    told = [json.loads(bytes(row.value)) for row in found]
    assert {one["track_id"] for one in told} == expected and len(told) == len(expected)
    assert {bytes(row.key).decode() for row in found} == {one.instruction_id for one in wanted}


def test_sql_finds_the_clones_of_the_truth(spark: Any, world: World) -> None:
    rows = [json.loads(value) for topic, *_, value in records(world) if topic == VEHICLES]
    names = ("record_id", "checkpoint_id", "plate", "capture_time")
    columns = [[row[VEHICLE_WIRE[name]] for name in names] for row in rows]
    stored = spark.createDataFrame(columns, list(names)).where("plate <> '识别异常'")
    stored = stored.withColumn("capture_time", f.to_timestamp("capture_time"))
    places = [(c.checkpoint_id, c.latitude, c.longitude) for c in world.deployment.cameras]
    checkpoints = spark.createDataFrame(
        places, "checkpoint_id STRING, latitude DOUBLE, longitude DOUBLE"
    )
    truth = CloneTruth.of(world)
    halves = (DAY_START_MS, DAY_START_MS + DAY_MS // 2, DAY_START_MS + 2 * DAY_MS)
    found = []
    for start, end in pairwise(halves):
        pairs = clone_pairs(spark, stored, checkpoints, start, end).collect()
        found += [(row.first_record, row.second_record) for row in pairs]
    assert sorted(found) == sorted(truth.pairs)  # none is lost or doubled at the edge
    assert truth.planted_in(found) == truth.planted == len(world.clones)


def test_the_job_of_a_video(spark: Any, world: World, tmp_path: Path) -> None:
    video = world.videos[0]
    url = video.save(tmp_path)
    found = analyse(spark, url)
    kinds = sorted((one.kind, one.boxes[0].frame, one.boxes[-1].frame) for one in found)
    assert kinds == sorted((t.kind, t.first_frame, t.last_frame) for t in video.objects)
    save_clip(url, found, tmp_path / "clips" / "clip.gif")
    assert (tmp_path / "clips" / "clip.gif").read_bytes().startswith(b"GIF89a")
