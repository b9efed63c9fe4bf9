"""The watch-list's expected tracks and counts, out of the simulated world's truth alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from city.clock import BUCKET_MS, at_hour
from city.feeds import FaceFeed, person, plate
from city.fields import FACES, VEHICLES
from city.instructions import WatchInstruction
from city.world import World

LATE = "late-taxi"
"""The instruction that is given at noon."""


@dataclass(frozen=True)
class Watched:
    """An instruction, and the rows of the world that it must find in the whole day."""

    instruction: WatchInstruction
    topic: str
    wanted: str
    rows: Any

    @property
    def name(self) -> str:
        """The instruction's id."""
        return self.instruction.instruction_id

    def since(self, city_ms: int) -> WatchInstruction:
        """The instruction, for the records that were sent since a city time."""
        return replace(self.instruction, since_ms=city_ms)


def watched(world: World) -> list[Watched]:
    """Three taxis, one of them from noon on; a person by name, another one by the face."""
    first, second, late = world.taxis[:3]
    told = [
        _vehicle(world, "taxi-1", first),
        _vehicle(world, "taxi-2", second),
        _vehicle(world, LATE, late),
    ]
    normal = world.faces.who[~world.faces.abnormal]
    often = np.argsort(-np.bincount(normal), kind="stable")[:2]
    known, unknown = int(often[0]), int(often[1])
    told.append(_by_name(world, "person", known))
    told.append(_by_face(world, "face", unknown))
    return told


def _rows(truth: Any, who: int) -> Any:
    return np.flatnonzero((truth.who == who) & ~truth.abnormal)


def _vehicle(world: World, identity: str, car: int) -> Watched:
    instruction = WatchInstruction(identity, traits=(("plate", plate(car)),))
    return Watched(instruction, VEHICLES, plate(car), _rows(world.vehicles, car))


def _by_name(world: World, identity: str, number: int) -> Watched:
    instruction = WatchInstruction(identity, person=person(number))
    return Watched(instruction, FACES, person(number), _rows(world.faces, number))


def _by_face(world: World, identity: str, number: int) -> Watched:
    rows = _rows(world.faces, number)
    picture = FaceFeed(world).features(rows[:1])[0]
    instruction = WatchInstruction(identity, face=tuple(map(float, picture)))
    return Watched(instruction, FACES, f"the face of {person(number)}", rows)


def counts_differ(
    world: World, found: Mapping[int, Mapping[str, int]], until_hour: float
) -> tuple[int, int]:
    """(camera and interval pairs compared, how many differ), of intervals before an hour."""
    until_ms = at_hour(until_hour)
    truth, cameras = world.vehicles, world.deployment.cameras
    is_early = truth.capture_ms < until_ms
    buckets = truth.capture_ms[is_early] // BUCKET_MS * BUCKET_MS
    expected = Counter(zip(buckets.tolist(), truth.camera[is_early].tolist(), strict=True))
    by_id = {c.checkpoint_id: c.index for c in cameras}
    told = Counter(
        {
            (bucket_ms, by_id.get(checkpoint, -1)): count
            for bucket_ms, counts in found.items()
            if bucket_ms < until_ms
            for checkpoint, count in counts.items()
        }
    )
    pairs = expected.keys() | told.keys()
    return len(pairs), sum(expected[pair] != told[pair] for pair in pairs)
