"""A vehicle or face record as the watch-list and the statistics see it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from city.fields import (
    ABNORMAL,
    FACE_FEATURES,
    FACE_WIRE,
    FACES,
    VEHICLE_WIRE,
    VEHICLES,
    city_ms_of,
)
from city.instructions import VEHICLE_TRAITS, What

WHAT: dict[str, What] = {VEHICLES: "vehicle", FACES: "face"}
"""Topic -> what its records show."""
_TRAITS = {name: VEHICLE_WIRE[name] for name in VEHICLE_TRAITS}


@dataclass(frozen=True, slots=True)
class Sighting:
    """Where and when a device has captured whom or what."""

    what: What
    record_id: str
    checkpoint_id: str
    capture_ms: int
    """City time."""
    identity: str
    """The plate or the person; empty when recognition could not read the picture."""
    picture_url: str = ""
    traits: Mapping[str, str] = field(default_factory=dict)
    face: tuple[float, ...] = ()


_capture_ms = lru_cache(maxsize=4096)(city_ms_of)
"""Captures come nearly in order of time, so the same seconds come again and again."""


def sighting_of(topic: str, value: bytes | None) -> Sighting | None:
    """The sighting in a data record; None when the value is none: what others send to the topic
    must not end the service."""
    try:
        row = json.loads(value or b"")
        return _vehicle(row) if topic == VEHICLES else _face(row)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _vehicle(row: Mapping[str, str]) -> Sighting:
    plate = row[VEHICLE_WIRE["plate"]]
    is_read = plate != ABNORMAL
    return Sighting(
        what="vehicle",
        record_id=row["record_id"],
        checkpoint_id=row[VEHICLE_WIRE["checkpoint_id"]],
        capture_ms=_capture_ms(row[VEHICLE_WIRE["capture_time"]]),
        identity=plate if is_read else "",
        picture_url=row.get("picture_url", ""),
        traits={name: row[key] for name, key in _TRAITS.items()} if is_read else {},
    )


def _face(row: Mapping[str, str]) -> Sighting:
    person = row[FACE_WIRE["person"]]
    face = tuple(map(float, row[FACE_WIRE["features"]]))
    if len(face) != FACE_FEATURES:
        raise ValueError(f"{len(face)} numbers are no face")
    return Sighting(
        what="face",
        record_id=row["record_id"],
        checkpoint_id=row[FACE_WIRE["checkpoint_id"]],
        capture_ms=_capture_ms(row[FACE_WIRE["capture_time"]]),
        identity=person if person != ABNORMAL else "",
        picture_url=row.get("picture_url", ""),
        face=face,
    )
