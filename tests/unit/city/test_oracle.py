"""The truth of the monitors, and the rules it is compared with, on the demo's own world."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pytest

from city.clock import DAY_START_MS
from city.fields import ABNORMAL
from city.gaps import Bucket, GapRule
from city.ingest import Flushes
from city.latency import Threshold
from city.oracle import LatencyTruth, QualityTruth
from city.skew import murmur2, partition_counts, skew
from city.world import World, make_world
from headwater.client.core.partitioning import murmur2 as kafka_murmur2


@pytest.fixture(scope="module")
def world() -> World:
    return make_world()


def test_the_demos_day_has_one_lasting_gap_and_the_leaf(world: World) -> None:
    truth = QualityTruth.of(world)
    assert truth.alarms == ["2017-08-24 19:00:00"]
    assert (18, 23) in truth.short_gaps
    failing = [world.deployment.cameras[n] for n in world.faults.failing]
    assert set(truth.worst) >= {camera.ip for camera in failing}
    assert truth.suspected == [failing[0].recognition_ip]


def test_the_rule_agrees_with_the_truth(world: World) -> None:
    truth, rule = QualityTruth.of(world), GapRule()
    opened = [
        n for n, (made, kept) in sorted(truth.counts.items()) if rule.see(Bucket(n, made, kept))
    ]
    assert opened == [113]
    assert [(gap.first, gap.last) for gap in rule.short_gaps] == truth.short_gaps


def test_latency_truth_has_peaks_alarms_and_the_fast_clock(world: World) -> None:
    tables = []
    for letter, truth in (("v", world.vehicles), ("f", world.faces)):
        rows = np.flatnonzero(~truth.abnormal)[::20]
        ids = [f"{letter}{row:07d}" for row in rows]
        times = pa.array(truth.sent_ms[rows] + 1_000).cast(pa.timestamp("ms"))
        tables.append(pa.table({"record_id": ids, "ingest_time": times}))
    found = LatencyTruth.of(world, *tables)
    assert found.curve[8] > 60 > 10 > found.curve[12]
    assert found.alarm_hours == ["07", "17"]
    assert list(found.early) == [world.deployment.cameras[world.faults.fast_clock].ip]
    assert found.stored_p99_s == 1.0


def test_a_threshold_opens_once_and_closes_below_the_lower_limit() -> None:
    threshold = Threshold(60.0, 30.0)
    values = (59.0, 61.0, 90.0, 45.0, 61.0, 29.0, 31.0, 61.0)
    seen = [threshold.see(value) for value in values]
    assert seen == [None, True, None, None, None, False, None, True]


def test_flushes_are_counted_by_the_limit_that_began_them() -> None:
    assert Flushes.of([0, 5, 7_000, 6_000, 5_999, 0], 6_000) == Flushes(2, 2)


@pytest.mark.parametrize("key", ["", "a", "浙A12345", "192.168.1.27", "Shangcheng", ABNORMAL])
def test_the_oracles_hash_is_kafkas(key: str) -> None:
    assert murmur2(key.encode()) == kafka_murmur2(key.encode()) & 0xFFFFFFFF


def test_one_key_fills_one_partition() -> None:
    counts = partition_counts(["Xihu"] * 12)
    assert sorted(counts) == [0] * 5 + [12]
    assert skew(counts) == 6.0
    assert skew([4, 4, 4]) == 1.0


def test_the_day_is_the_books() -> None:
    assert datetime.fromtimestamp(DAY_START_MS / 1000, UTC).isoformat().startswith("2017-08-24T00")
