"""The world of the city's day, from a seed: who passes which camera when, and what goes wrong.

It is the truth that every figure is checked against. Producers send it; no flow may read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from city.clock import DAY_START_MS, HOUR_MS
from city.places import Deployment, deploy
from city.traffic import TAXIS, Captures, ClonedPair, clone, drive, joined, walk
from city.videos import Video, film

BLURRED_SHARE = 0.02
FAST_CLOCK_MS = 90_000
LEAF_HOURS = (3.0, 4.0)
LEAF_CONVOY = (50, 46, 42, 38, 34, 30)
"""Lorries that pass under the leaf, per ten minutes: the gap shrinks, it does not widen."""
FAILING_FROM_H = (18.0, 18.33, 18.67, 19.0)
CLONES = 20
VIDEOS = 6
PERSONS_PER_FACE = 12
QUEUE_PEAKS_H = ((8.0, 0.7), (18.0, 0.8))
QUEUE_AT_PEAK_MS = 240_000


@dataclass(frozen=True)
class WorldPlan:
    """How large a world is; the default is the demo's."""

    seed: int = 20170824
    cameras: int = 240
    servers: int = 12
    vehicles: int = 300_000
    faces: int = 90_000


@dataclass(frozen=True)
class Faults:
    """What goes wrong in the day, by camera index."""

    fast_clock: int
    leaf: int
    failing: tuple[int, ...]
    """They fail one after the other; all but the last are behind one server."""

    @property
    def cameras(self) -> frozenset[int]:
        """All of them."""
        return frozenset((self.fast_clock, self.leaf, *self.failing))


@dataclass(frozen=True)
class Truth:
    """Records of one kind as columns, in the order in which they are sent."""

    camera: Any
    capture_ms: Any
    """By the device's clock, in whole seconds: what the record says."""
    sent_ms: Any
    who: Any
    """The car or the person."""
    abnormal: Any
    """True where recognition could not read the picture."""

    def __len__(self) -> int:
        return len(self.sent_ms)

    def until(self, sent_ms: float) -> int:
        """How many records are sent before a city time."""
        return int(np.searchsorted(self.sent_ms, sent_ms, side="left"))


@dataclass(frozen=True)
class World:
    """Everything that happens in the day."""

    plan: WorldPlan
    deployment: Deployment
    vehicles: Truth
    faces: Truth
    cars: int
    persons: int
    faults: Faults
    clones: tuple[ClonedPair, ...]
    videos: tuple[Video, ...]

    @property
    def taxis(self) -> tuple[int, ...]:
        """Cars that drive all day: worth watching."""
        return tuple(range(TAXIS))


def make_world(plan: WorldPlan = WorldPlan()) -> World:
    """The world of a plan: the same for the same plan."""
    rng = np.random.default_rng(plan.seed)
    deployment = deploy(rng, plan.cameras, plan.servers)
    captures, cars = drive(rng, deployment, plan.vehicles)
    faults = _choose_faults(deployment, captures)
    pairs = clone(rng, deployment, captures, CLONES, faults.cameras)
    copies = Captures(
        np.array([pair.second_camera for pair in pairs], np.int64),
        np.array([pair.second_ms for pair in pairs], np.int64),
        np.array([pair.car for pair in pairs], np.int64),
    )
    convoy = _convoy(rng, faults.leaf, cars)
    cars += len(convoy)
    persons = max(plan.faces // PERSONS_PER_FACE, 2)
    faces = walk(rng, plan.cameras, plan.faces, persons)
    return World(
        plan=plan,
        deployment=deployment,
        vehicles=_truth(rng, deployment, joined([captures, copies, convoy]), faults, pairs),
        faces=_truth(rng, deployment, faces, faults, []),
        cars=cars,
        persons=persons,
        faults=faults,
        clones=tuple(pairs),
        videos=film(rng, VIDEOS, plan.cameras),
    )


def _choose_faults(deployment: Deployment, captures: Captures) -> Faults:
    """Busy devices fail: three behind the busiest server, and a smart one."""
    flow = np.bincount(captures.camera, minlength=len(deployment.cameras))
    busiest = [int(n) for n in np.argsort(-flow, kind="stable")]
    cameras = deployment.cameras
    by_server: dict[str, list[int]] = {}
    for n in busiest:
        server = cameras[n].server
        if server is not None:
            by_server.setdefault(server.ip, []).append(n)
    behind = max((found[:3] for found in by_server.values()), key=lambda f: int(flow[f].sum()))
    smart = [n for n in busiest if cameras[n].server is None]
    return Faults(fast_clock=smart[2], leaf=smart[1], failing=(*behind, smart[0]))


def _convoy(rng: np.random.Generator, camera: int, first_car: int) -> Captures:
    """Lorries that pass the camera under the leaf, each once."""
    starts = [LEAF_HOURS[0] * HOUR_MS + n * 600_000 for n in range(len(LEAF_CONVOY))]
    parts = [
        rng.uniform(start + 5_000, start + 590_000, count)
        for start, count in zip(starts, LEAF_CONVOY, strict=True)
    ]
    at_ms = (DAY_START_MS + np.concatenate(parts)).astype(np.int64)
    count = len(at_ms)
    return Captures(np.full(count, camera), at_ms, first_car + np.arange(count))


def _truth(
    rng: np.random.Generator,
    deployment: Deployment,
    captures: Captures,
    faults: Faults,
    pairs: list[ClonedPair],
) -> Truth:
    camera, true_ms = captures.camera, captures.at_ms
    abnormal = rng.random(len(captures)) < BLURRED_SHARE
    abnormal &= ~_of_pairs(captures, pairs)
    hour = (true_ms - DAY_START_MS) / HOUR_MS
    abnormal |= (camera == faults.leaf) & (hour >= LEAF_HOURS[0]) & (hour < LEAF_HOURS[1])
    for device, from_h in zip(faults.failing, FAILING_FROM_H, strict=True):
        abnormal |= (camera == device) & (hour >= from_h)
    capture_ms = true_ms + np.where(camera == faults.fast_clock, FAST_CLOCK_MS, 0)
    sent_ms = true_ms + _queue_ms(rng, deployment, camera, hour)
    order = np.argsort(sent_ms, kind="stable")
    return Truth(
        camera=camera[order],
        capture_ms=(capture_ms // 1000 * 1000)[order],
        sent_ms=sent_ms[order],
        who=captures.who[order],
        abnormal=abnormal[order],
    )


def _of_pairs(captures: Captures, pairs: list[ClonedPair]) -> Any:
    """True for the captures of the planted pairs: these pictures are sharp."""
    planted = {(pair.car, ms) for pair in pairs for ms in (pair.first_ms, pair.second_ms)}
    rows = np.isin(captures.who, [pair.car for pair in pairs])
    for row in np.flatnonzero(rows):
        rows[row] = (int(captures.who[row]), int(captures.at_ms[row])) in planted
    return rows


def _queue_ms(rng: np.random.Generator, deployment: Deployment, camera: Any, hour: Any) -> Any:
    """From capture to sending: short in a smart camera, a queue at the servers in rush hours."""
    behind = np.array([c.server is not None for c in deployment.cameras])[camera]
    rush = sum(np.exp(-(((hour - at) / width) ** 2)) for at, width in QUEUE_PEAKS_H)
    smart_ms = 300 + rng.exponential(300.0, len(camera))
    server_ms = 1500 + rng.exponential(500.0, len(camera))
    server_ms += QUEUE_AT_PEAK_MS * rush * rng.uniform(0.6, 1.4, len(camera))
    return np.where(behind, server_ms, smart_ms).astype(np.int64)
