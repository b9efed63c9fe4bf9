"""Instructions of police and traffic users: JSON records of the instruction topics.

    {"instruction_id": "w1", "action": "watch", "vehicle": {"plate": "浙A00017"}}
    {"instruction_id": "w2", "action": "watch", "vehicle": {"body_colour": "红色", "brand": "Jeep"}}
    {"instruction_id": "w3", "action": "watch", "person": "P000042"}
    {"instruction_id": "w4", "action": "watch", "face": [0.12, ...16 numbers], "likeness": 0.9}
    {"instruction_id": "c1", "action": "count", "what": "vehicle", "checkpoint_id": "*",
     "minutes": 10}
    {"instruction_id": "w1", "action": "stop"}

An instruction holds for the records after it, or, with "since_ms", for those that were sent at that
city time or later. A later instruction of the same id replaces the former.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from city.fields import FACE_FEATURES
from headwater.errors import UsageError

VEHICLE_TRAITS = ("plate", "plate_colour", "body_colour", "vehicle_type", "brand", "series")
LIKENESS = 0.9
"""The cosine from which two faces are taken for the same person's."""
EVERYWHERE = "*"
MINUTES_MAX = 1440
TEXT_CHARACTERS_MAX = 64
INSTRUCTION_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

What = Literal["vehicle", "face"]


@dataclass(frozen=True, slots=True)
class WatchInstruction:
    """Follow a vehicle or a person: each record that matches becomes a point of a track."""

    instruction_id: str
    traits: tuple[tuple[str, str], ...] = ()
    """(field, value) pairs of a vehicle; all have to match."""
    person: str = ""
    face: tuple[float, ...] = ()
    likeness: float = LIKENESS
    since_ms: int | None = None

    @property
    def what(self) -> What:
        """Which records it looks at."""
        return "vehicle" if self.traits else "face"

    def value(self) -> bytes:
        """The record's value."""
        told: dict[str, Any] = {"instruction_id": self.instruction_id, "action": "watch"}
        if self.traits:
            told["vehicle"] = dict(self.traits)
        elif self.person:
            told["person"] = self.person
        else:
            told |= {"face": list(self.face), "likeness": self.likeness}
        if self.since_ms is not None:
            told["since_ms"] = self.since_ms
        return json.dumps(told, ensure_ascii=False).encode()


@dataclass(frozen=True, slots=True)
class CountInstruction:
    """Count the vehicles or people that pass a checkpoint, or each of them, per interval."""

    instruction_id: str
    what: What
    checkpoint_id: str = EVERYWHERE
    minutes: int = 10
    since_ms: int | None = None

    def value(self) -> bytes:
        """The record's value."""
        told: dict[str, Any] = {
            "instruction_id": self.instruction_id,
            "action": "count",
            "what": self.what,
            "checkpoint_id": self.checkpoint_id,
            "minutes": self.minutes,
        }
        if self.since_ms is not None:
            told["since_ms"] = self.since_ms
        return json.dumps(told).encode()


@dataclass(frozen=True, slots=True)
class StopInstruction:
    """End the instruction of this id."""

    instruction_id: str

    def value(self) -> bytes:
        """The record's value."""
        return json.dumps({"instruction_id": self.instruction_id, "action": "stop"}).encode()


Instruction = WatchInstruction | CountInstruction | StopInstruction


def parse_instruction(value: bytes | None) -> Instruction:
    """An instruction record's value. Raises UsageError that names what is wrong."""
    try:
        told = json.loads(value or b"")
    except ValueError as e:
        raise UsageError("an instruction is a JSON object: this value is none") from e
    if not isinstance(told, dict):
        raise UsageError(f"an instruction is a JSON object, not {type(told).__name__}")
    identity = told.get("instruction_id")
    if not isinstance(identity, str) or not INSTRUCTION_ID.fullmatch(identity):
        raise UsageError("instruction_id: 1 to 64 letters, digits, dots, dashes, underscores")
    action = told.get("action")
    if action == "stop":
        return StopInstruction(identity)
    if action == "count":
        return _count(identity, told)
    if action == "watch":
        return _watch(identity, told)
    raise UsageError(f"action {action!r}: give watch, count or stop")


def _count(identity: str, told: Mapping[str, Any]) -> CountInstruction:
    what, minutes = told.get("what"), told.get("minutes", 10)
    if what not in ("vehicle", "face"):
        raise UsageError(f"what {what!r}: give vehicle or face")
    if type(minutes) is not int or not 1 <= minutes <= MINUTES_MAX:
        raise UsageError(f"minutes {minutes!r}: give a whole number from 1 to {MINUTES_MAX}")
    place = _text("checkpoint_id", told.get("checkpoint_id", EVERYWHERE))
    return CountInstruction(identity, what, place, minutes, _since(told))


def _watch(identity: str, told: Mapping[str, Any]) -> WatchInstruction:
    given = [name for name in ("vehicle", "person", "face") if name in told]
    if len(given) != 1:
        raise UsageError("a watch names one of vehicle, person, face")
    if "person" in told:
        person = _text("person", told["person"])
        return WatchInstruction(identity, person=person, since_ms=_since(told))
    if "face" in told:
        likeness = told.get("likeness", LIKENESS)
        if type(likeness) not in (int, float) or not 0 < likeness <= 1:
            raise UsageError(f"likeness {likeness!r}: give a number above 0, at most 1")
        face = _face(told["face"])
        return WatchInstruction(
            identity, face=face, likeness=float(likeness), since_ms=_since(told)
        )
    vehicle = told["vehicle"]
    if not isinstance(vehicle, dict) or not vehicle:
        raise UsageError(f"vehicle: give one or more of {', '.join(VEHICLE_TRAITS)}")
    unknown = sorted(set(vehicle) - set(VEHICLE_TRAITS))
    if unknown:
        raise UsageError(f"vehicle has no {unknown[0]!r}: give {', '.join(VEHICLE_TRAITS)}")
    traits = tuple((k, _text(k, v)) for k, v in sorted(vehicle.items()))
    return WatchInstruction(identity, traits, since_ms=_since(told))


def _since(told: Mapping[str, Any]) -> int | None:
    since_ms = told.get("since_ms")
    if since_ms is not None and (type(since_ms) is not int or since_ms < 0):
        raise UsageError(f"since_ms {since_ms!r}: give milliseconds since 1970")
    return since_ms


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 1 <= len(value) <= TEXT_CHARACTERS_MAX:
        raise UsageError(f"{name}: give a text of 1 to {TEXT_CHARACTERS_MAX} characters")
    return value


def _face(value: Any) -> tuple[float, ...]:
    numbers = value if isinstance(value, list) else []
    if len(numbers) != FACE_FEATURES or any(type(x) not in (int, float) for x in numbers):
        raise UsageError(f"face: give a list of {FACE_FEATURES} numbers")
    if not any(numbers):
        raise UsageError("face: all numbers are 0, which is nobody's face")
    return tuple(float(x) for x in numbers)
