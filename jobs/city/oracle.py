"""The expected figures, from the world's truth alone: numpy, no Spark, no code of the flows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from city.clock import BUCKET_MS, DAY_START_MS, HOUR_MS
from city.fields import city_text
from city.world import Truth, World

BUCKETS_OF_DAY = 144
ALARM_ABOVE_S, ALARM_BELOW_S = 60.0, 30.0
RANKED = 5


@dataclass(frozen=True)
class LatencyTruth:
    """The latency monitor's figures. Ingest times are measured, so they come from the tables."""

    curve: dict[int, float]
    """Hour of capture -> mean seconds."""
    early: dict[str, int]
    """Device -> rows stored before they were captured."""
    stored_p99_s: float
    alarm_hours: list[str]

    @classmethod
    def of(cls, world: World, vehicles: pa.Table, faces: pa.Table) -> LatencyTruth:
        """From the record ids and ingest times of both tables."""
        truth, cameras = world.vehicles, world.deployment.cameras
        rows, ingest_ms = _ingested(vehicles)
        capture_ms = truth.capture_ms[rows]
        latency_s = (ingest_ms - capture_ms) / 1000.0
        hours = (capture_ms - DAY_START_MS) // HOUR_MS
        counts, sums = np.bincount(hours), np.bincount(hours, latency_s)
        early = np.bincount(truth.camera[rows[latency_s < 0]], minlength=len(cameras))
        return cls(
            curve={int(h): float(sums[h] / counts[h]) for h in np.flatnonzero(counts)},
            early={cameras[n].ip: int(early[n]) for n in np.flatnonzero(early)},
            stored_p99_s=float(np.percentile((ingest_ms - truth.sent_ms[rows]) / 1000.0, 99)),
            alarm_hours=_alarm_hours([(truth, rows, ingest_ms), (world.faces, *_ingested(faces))]),
        )


def _ingested(stored: pa.Table) -> tuple[Any, Any]:
    """The world's rows, and when each was stored."""
    rows = np.array([int(text[1:]) for text in stored["record_id"].to_pylist()], np.int64)
    return rows, stored["ingest_time"].to_numpy().astype("datetime64[ms]").astype(np.int64)


def _alarm_hours(parts: list[tuple[Truth, Any, Any]]) -> list[str]:
    """The hours in which alarms open."""
    sums, counts = np.zeros(BUCKETS_OF_DAY), np.zeros(BUCKETS_OF_DAY)
    for truth, rows, ingest_ms in parts:
        bucket = (truth.sent_ms[rows] - DAY_START_MS) // BUCKET_MS
        latency_s = (ingest_ms - truth.capture_ms[rows]) / 1000.0
        sums += np.bincount(bucket, latency_s, minlength=BUCKETS_OF_DAY)
        counts += np.bincount(bucket, minlength=BUCKETS_OF_DAY)
    hours, is_open = [], False
    for bucket in np.flatnonzero(counts):
        mean = sums[bucket] / counts[bucket]
        if not is_open and mean > ALARM_ABOVE_S:
            hours.append(f"{(int(bucket) + 1) // 6:02d}")
        is_open = mean > ALARM_ABOVE_S or (is_open and mean >= ALARM_BELOW_S)
    return hours


@dataclass(frozen=True)
class QualityTruth:
    """The quality monitor's figures."""

    counts: dict[int, tuple[int, int]]
    """Bucket -> produced and normal records."""
    short_gaps: list[tuple[int, int]]
    alarms: list[str]
    """City times at which a gap has lasted and widened for four buckets."""
    suspected: list[str]
    worst: list[str]

    @property
    def produced(self) -> int:
        """Records of the day."""
        return sum(produced for produced, _ in self.counts.values())

    @property
    def normal(self) -> int:
        """Records of the day that recognition could read."""
        return sum(normal for _, normal in self.counts.values())

    @classmethod
    def of(cls, world: World) -> QualityTruth:
        """From the world."""
        cameras = world.deployment.cameras
        produced, normal = (np.zeros(BUCKETS_OF_DAY, np.int64) for _ in range(2))
        abnormal: Any = np.zeros(len(cameras), np.int64)
        for truth in (world.vehicles, world.faces):
            bucket = (truth.sent_ms - DAY_START_MS) // BUCKET_MS
            produced += np.bincount(bucket, minlength=BUCKETS_OF_DAY)
            normal += np.bincount(bucket[~truth.abnormal], minlength=BUCKETS_OF_DAY)
            abnormal += np.bincount(truth.camera[truth.abnormal], minlength=len(cameras))
        gaps, alarms = _gaps(produced, normal)
        server = cameras[world.faults.failing[0]].server
        worst = sorted(range(len(cameras)), key=lambda n: (-abnormal[n], n))[:RANKED]
        return cls(
            counts={int(n): (int(produced[n]), int(normal[n])) for n in np.flatnonzero(produced)},
            short_gaps=gaps,
            alarms=alarms,
            suspected=[server.ip] if server is not None and alarms else [],
            worst=[cameras[n].ip for n in worst],
        )


def _gaps(produced: Any, normal: Any) -> tuple[list[tuple[int, int]], list[str]]:
    """Runs of buckets with a gap: those without an alarm, and the alarms' times."""
    missing = produced - normal
    share = missing / np.maximum(produced, 1)
    gap = np.concatenate([[False], (missing > 5) & (share > 0.03), [False]])
    edges = np.flatnonzero(np.diff(gap.astype(int)))
    short, alarms = [], []
    for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        widens = [
            n
            for n in range(first + 3, end)
            if share[n - 1] + share[n] > 1.1 * (share[n - 3] + share[n - 2])
        ]
        if widens:
            alarms.append(city_text(DAY_START_MS + (widens[0] + 1) * BUCKET_MS))
        elif end < BUCKETS_OF_DAY:
            short.append((first, end - 1))
    return short, alarms
