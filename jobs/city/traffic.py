"""The traffic of the day: trips of vehicles from camera to camera, faces, and cloned plates.

A trip goes from camera to camera at a speed that a car can have, so that only a cloned plate is
seen at two places too far apart for the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from city.clock import DAY_MS, DAY_START_MS, HOUR_MS
from city.places import Deployment

HOP_KM_MIN = 3.0
"""With a clock that is 90 s ahead, a car at 60 km/h over 3 km still looks slower than 160 km/h."""
NEIGHBOURS = 6
SPEEDS_KMH = (30.0, 60.0)
TRIP_HOPS = 6
BREAK_MS = 600_000
LAST_MINUTES_MS = 900_000
CLONE_KM_MIN = 20.0
CLONE_AFTER_MS = 120_000
PEAKS_H = ((7.8, 0.8, 0.35), (17.9, 0.9, 0.35))
"""Hour, standard deviation, share of the rush hours; the rest is spread over day and night."""
TAXIS = 4
CLONE_HOURS = (6.0, 20.0)


@dataclass(frozen=True)
class Captures:
    """Captures as columns, in no order: camera, moment (ms of city time), and who (an index)."""

    camera: Any
    at_ms: Any
    who: Any

    def __len__(self) -> int:
        return len(self.at_ms)

    def within_day(self) -> Captures:
        """Without what lies after the last minutes of the day: all is sent before midnight."""
        kept = self.at_ms < DAY_START_MS + DAY_MS - LAST_MINUTES_MS
        return Captures(self.camera[kept], self.at_ms[kept].astype(np.int64), self.who[kept])


@dataclass(frozen=True)
class ClonedPair:
    """A planted clone: the car at one camera, its plate's copy at another, too soon after."""

    car: int
    first_camera: int
    second_camera: int
    first_ms: int
    second_ms: int


def moments(rng: np.random.Generator, count: int) -> Any:
    """Hours of the day, with the rush hours' peaks."""
    kind = rng.random(count)
    hours = rng.uniform(0.2, 23.3, count)
    low = 0.0
    for hour, deviation, share in PEAKS_H:
        chosen = (kind >= low) & (kind < low + share)
        hours[chosen] = rng.normal(hour, deviation, int(chosen.sum()))
        low += share
    return np.clip(hours, 0.2, 23.3)


def neighbours(deployment: Deployment) -> Any:
    """For each camera, the nearest ones that are at least HOP_KM_MIN away."""
    distances = deployment.distances_km.copy()
    distances[distances < HOP_KM_MIN] = np.inf
    return np.argsort(distances, axis=1)[:, :NEIGHBOURS]


def trips(rng: np.random.Generator, deployment: Deployment, first: Any) -> tuple[Any, Any]:
    """Trips in parallel: (cameras, milliseconds since the start), a row per trip."""
    near = neighbours(deployment)
    count = len(first)
    cameras = np.empty((count, TRIP_HOPS), np.int64)
    since_ms = np.zeros((count, TRIP_HOPS))
    cameras[:, 0] = first
    for hop in range(1, TRIP_HOPS):
        here = cameras[:, hop - 1]
        there = near[here, rng.integers(0, near.shape[1], count)]
        took_h = deployment.distances_km[here, there] / rng.uniform(*SPEEDS_KMH, count)
        cameras[:, hop] = there
        since_ms[:, hop] = since_ms[:, hop - 1] + took_h * HOUR_MS
    return cameras, since_ms


def drive(rng: np.random.Generator, deployment: Deployment, captures: int) -> tuple[Captures, int]:
    """All cars' captures within the day, and the number of cars.

    A car makes two trips; the second begins where and after the first ended. The first cars are
    taxis: they drive from midnight to midnight.
    """
    cars = TAXIS + max(captures // (2 * TRIP_HOPS), 2)
    who = np.arange(TAXIS, cars)
    hours = np.sort(moments(rng, 2 * len(who)).reshape(len(who), 2), axis=1)
    first = rng.integers(0, len(deployment.cameras), len(who))
    end_ms = np.full(len(who), -np.inf)
    parts = []
    for turn in range(2):
        planned_ms = DAY_START_MS + hours[:, turn] * HOUR_MS
        start_ms = np.maximum(planned_ms, end_ms + BREAK_MS)
        cameras, since_ms = trips(rng, deployment, first)
        parts.append(_flat(cameras, start_ms, since_ms, who))
        end_ms, first = start_ms + since_ms[:, -1], cameras[:, -1]
    taxis = np.arange(TAXIS)
    start_ms, first = np.full(TAXIS, float(DAY_START_MS)), taxis * len(deployment.cameras) // TAXIS
    while start_ms.min() < DAY_START_MS + DAY_MS:
        cameras, since_ms = trips(rng, deployment, first)
        parts.append(_flat(cameras, start_ms, since_ms, taxis))
        start_ms, first = start_ms + since_ms[:, -1] + BREAK_MS, cameras[:, -1]
    return joined(parts).within_day(), cars


def _flat(cameras: Any, start_ms: Any, since_ms: Any, who: Any) -> Captures:
    times = start_ms[:, None] + since_ms
    return Captures(cameras.ravel(), times.ravel(), np.repeat(who, TRIP_HOPS))


def walk(rng: np.random.Generator, cameras: int, captures: int, persons: int) -> Captures:
    """Captures of faces: any person, any camera, most in the rush hours."""
    at_ms = DAY_START_MS + moments(rng, captures) * HOUR_MS
    return Captures(
        rng.integers(0, cameras, captures), at_ms, rng.integers(0, persons, captures)
    ).within_day()


def clone(
    rng: np.random.Generator,
    deployment: Deployment,
    captures: Captures,
    count: int,
    avoid: frozenset[int],
) -> list[ClonedPair]:
    """Choose cars of which a copy is seen far away two minutes after, by day, not at `avoid`."""
    hour = (captures.at_ms - DAY_START_MS) / HOUR_MS
    fit = (hour > CLONE_HOURS[0]) & (hour < CLONE_HOURS[1]) & (captures.who >= TAXIS)
    fit &= ~np.isin(captures.camera, list(avoid))
    pairs: dict[int, ClonedPair] = {}
    for row in rng.permutation(np.flatnonzero(fit)):
        if len(pairs) == count:
            break
        first, car = int(captures.camera[row]), int(captures.who[row])
        far = np.flatnonzero(deployment.distances_km[first] >= CLONE_KM_MIN)
        far = far[~np.isin(far, list(avoid))]
        if car in pairs or not len(far):
            continue
        at_ms, second = int(captures.at_ms[row]), int(rng.choice(far))
        pairs[car] = ClonedPair(car, first, second, at_ms, at_ms + CLONE_AFTER_MS)
    return list(pairs.values())


def joined(parts: list[Captures]) -> Captures:
    """Captures one after the other."""
    columns = [(part.camera, part.at_ms, part.who) for part in parts]
    camera, at_ms, who = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Captures(camera, at_ms.astype(np.int64), who)
