"""A vehicle or face record as the watch-list and the statistics see it.

The live service makes one of each record of the city, so what only a few instructions ask for, a
vehicle's traits, stays in the decoded row until it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

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
_CHECKPOINT, _TIME = VEHICLE_WIRE["checkpoint_id"], VEHICLE_WIRE["capture_time"]
_PLATE, _PERSON, _FEATURES = VEHICLE_WIRE["plate"], FACE_WIRE["person"], FACE_WIRE["features"]


class Sighting(NamedTuple):
    """Where and when a device has captured whom or what."""

    what: What
    record_id: str
    checkpoint_id: str
    capture_ms: int
    """City time."""
    identity: str
    """The plate or the person; empty when recognition could not read the picture."""
    face: list[float]
    face_length: float
    """Of `face` as a vector; 0 for a vehicle."""
    row: Mapping[str, Any]
    """The record as it came."""

    @property
    def picture_url(self) -> str:
        """Where the picture is; empty when the record does not say."""
        return str(self.row.get("picture_url", ""))

    def trait(self, name: str) -> str | None:
        """A trait of a vehicle; None when recognition could not read the picture."""
        return self.row.get(_TRAITS[name]) if self.identity else None


_capture_ms = lru_cache(maxsize=4096)(city_ms_of)
"""Captures come nearly in order of time, so the same seconds come again and again."""


def sighting_of(topic: str, value: bytes | None) -> Sighting | None:
    """The sighting in a data record; None when the value is none: what others send to the topic
    must not end the service."""
    try:
        row = orjson.loads(value or b"")
        what: What = "vehicle" if topic == VEHICLES else "face"
        face: list[float] = []
        length = 0.0
        if what == "vehicle":
            identity = row[_PLATE]
        else:
            identity, face = row[_PERSON], row[_FEATURES]
            length = math.hypot(*face)
            if len(face) != FACE_FEATURES:
                return None
        record_id, place = row["record_id"], row[_CHECKPOINT]
        if not type(identity) is type(record_id) is type(place) is str:
            return None
        read = "" if identity == ABNORMAL else identity
        return Sighting(what, record_id, place, _capture_ms(row[_TIME]), read, face, length, row)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
