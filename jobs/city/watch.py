"""The watch-list: which active instructions a vehicle or face record matches. Pure.

Each record is compared with all active instructions: those of a plate or a person by a look-up,
those of traits or of a face one by one.
"""

from __future__ import annotations

import json
import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from city.instructions import (
    CountInstruction,
    Instruction,
    StopInstruction,
    WatchInstruction,
)
from city.sightings import Sighting


def likeness(one: Sequence[float], other: Sequence[float], other_length: float) -> float:
    """The cosine of two faces: 1 for the same direction; 0 if either has no length."""
    lengths = math.hypot(*one) * other_length
    return sum(map(operator.mul, one, other)) / lengths if lengths else 0.0


@dataclass
class WatchList:
    """The active instructions, in memory."""

    active: dict[str, WatchInstruction] = field(default_factory=dict)
    _by_plate: dict[str, list[WatchInstruction]] = field(default_factory=dict)
    _by_person: dict[str, list[WatchInstruction]] = field(default_factory=dict)
    _vehicles: list[WatchInstruction] = field(default_factory=list)
    _faces: list[WatchInstruction] = field(default_factory=list)

    def apply(self, instruction: Instruction) -> None:
        """Take an instruction: it holds for the records that are matched after this call."""
        if isinstance(instruction, CountInstruction):
            return
        former = self.active.pop(instruction.instruction_id, None)
        if former is not None:
            self._shelf(former).remove(former)
        if not isinstance(instruction, StopInstruction):
            self.active[instruction.instruction_id] = instruction
            self._shelf(instruction).append(instruction)

    def _shelf(self, instruction: WatchInstruction) -> list[WatchInstruction]:
        plate = dict(instruction.traits).get("plate")
        if plate is not None:
            return self._by_plate.setdefault(plate, [])
        if instruction.traits:
            return self._vehicles
        if instruction.person:
            return self._by_person.setdefault(instruction.person, [])
        return self._faces

    def matches(self, sighting: Sighting) -> Iterator[WatchInstruction]:
        """The instructions that a record matches."""
        if sighting.what == "vehicle":
            for one in self._by_plate.get(sighting.identity, ()):
                if has_traits(sighting, one):
                    yield one
            for one in self._vehicles:
                if has_traits(sighting, one):
                    yield one
            return
        yield from self._by_person.get(sighting.identity, ())
        for one in self._faces:
            if likeness(one.face, sighting.face, sighting.face_length) >= one.likeness:
                yield one


def has_traits(sighting: Sighting, instruction: WatchInstruction) -> bool:
    """True when every trait of the instruction is the record's."""
    return all(sighting.trait(name) == value for name, value in instruction.traits)


def track_point(
    instruction_id: str, sighting: Sighting, place: tuple[str, int], offset: int, sent_ms: int
) -> bytes:
    """The value of a track record. `place` (topic, partition), `offset` and `sent_ms` (its
    timestamp) are the matched record's."""
    told: dict[str, Any] = {
        "kind": "point",
        "track_id": f"{instruction_id}/{sighting.record_id}",
        "instruction_id": instruction_id,
        "what": sighting.what,
        "record_id": sighting.record_id,
        "identity": sighting.identity,
        "checkpoint_id": sighting.checkpoint_id,
        "capture_ms": sighting.capture_ms,
        "picture_url": sighting.picture_url,
        "partition": f"{place[0]}-{place[1]}",
        "offset": offset,
        "sent_ms": sent_ms,
    }
    return json.dumps(told, ensure_ascii=False, separators=(",", ":")).encode()
