"""The world's records as the devices send them: Arrow tables with the book's keys as columns.

`KEY` and `TIME` are columns for the message's key and timestamp, not part of its value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from city.fields import (
    ABNORMAL,
    FACE_FEATURES,
    FACE_WIRE,
    FACES,
    TIME_FORMAT,
    VEHICLE_RECOGNISED,
    VEHICLE_WIRE,
    VEHICLES,
)
from city.places import Deployment
from city.world import Truth, World

KEY, TIME = "key", "time"
PLATE_DIGITS = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZ"
PLATE_PREFIX = "浙A"
PLATE_LENGTH = 5
PLATE_STEP = 7_919
"""Neighbouring cars get plates that look nothing alike."""
PICTURES = "s3://city-pictures/2017-08-24"
COLOURS = ("白色", "黑色", "银色", "灰色", "红色", "蓝色")
PLATE_COLOURS = ("蓝色", "绿色", "黄色")
TYPES = ("轿车", "SUV", "面包车", "货车")
BRANDS = (
    ("Jeep", "2014 指南者 2.4L"),
    ("大众", "2012 帕萨特 1.8T"),
    ("丰田", "2015 凯美瑞 2.0G"),
    ("吉利", "2016 博越 1.8TD"),
    ("比亚迪", "2017 宋 1.5T"),
)
YES, NO = "是", "否"


class Feed(Protocol):
    """The records of one topic, in the order in which they are sent."""

    @property
    def topic(self) -> str:
        """The topic."""
        ...

    @property
    def truth(self) -> Truth:
        """The same records, row by row, as the world has them."""
        ...

    @property
    def columns(self) -> list[str]:
        """The columns that make up the message's JSON value."""
        ...

    def table(self, rows: Any) -> pa.Table:
        """Some rows, by index, with KEY and TIME."""
        ...


def plate(car: int) -> str:
    """The plate of a car: different for each of the first 45 million."""
    left = car * PLATE_STEP % len(PLATE_DIGITS) ** PLATE_LENGTH
    text = ""
    for _ in range(PLATE_LENGTH):
        left, digit = divmod(left, len(PLATE_DIGITS))
        text = PLATE_DIGITS[digit] + text
    return PLATE_PREFIX + text


def person(number: int) -> str:
    """The identifier of a person."""
    return f"P{number:06d}"


def vehicle_id(row: int) -> str:
    """The record id of a row of the world's vehicles."""
    return f"v{row:07d}"


def face_id(row: int) -> str:
    """The record id of a row of the world's faces."""
    return f"f{row:07d}"


@dataclass(frozen=True)
class Devices:
    """The columns that depend on the camera alone."""

    checkpoint_id: Any
    ip: Any
    recognition_ip: Any

    @classmethod
    def of(cls, deployment: Deployment) -> Devices:
        """The columns of a deployment's cameras."""
        cameras = deployment.cameras
        return cls(
            pa.array([c.checkpoint_id for c in cameras]),
            pa.array([c.ip for c in cameras]),
            pa.array([c.recognition_ip for c in cameras]),
        )

    def columns(self, camera: Any, ids: Any, capture_ms: Any) -> dict[str, Any]:
        """The columns that every record has."""
        which = pa.array(camera)
        ip = self.ip.take(which)
        times = pa.array(capture_ms).cast(pa.timestamp("ms")).cast(pa.timestamp("s"))
        return {
            "record_id": ids,
            "checkpoint_id": self.checkpoint_id.take(which),
            "capture_time": pc.strftime(times, TIME_FORMAT),
            "device_ip": ip,
            "recognition_ip": self.recognition_ip.take(which),
            "picture_url": pc.binary_join_element_wise(
                PICTURES, ip, pc.binary_join_element_wise(ids, ".jpg", ""), "/"
            ),
        }


def _ids(letter: str, rows: Any) -> Any:
    digits = pc.utf8_lpad(pa.array(rows).cast(pa.string()), 7, "0")
    return pc.binary_join_element_wise(letter, digits, "")


def _keyed(
    wire: dict[str, str], columns: dict[str, Any], who: str, abnormal: Any, sent_ms: Any
) -> pa.Table:
    """The columns with the record's keys; an abnormal record is keyed by its device, as all of
    them have the same value in the field that is the key otherwise."""
    key = pc.if_else(pa.array(abnormal), columns["device_ip"], columns[who])
    named = {wire_key: columns[name] for name, wire_key in wire.items()}
    return pa.table({KEY: key, TIME: pa.array(sent_ms, pa.int64()), **named})


class VehicleFeed:
    """Captures of vehicles."""

    topic = VEHICLES

    def __init__(self, world: World) -> None:
        self.truth = world.vehicles
        self._devices = Devices.of(world.deployment)
        rng = np.random.default_rng(world.plan.seed + 1)
        cars = world.cars
        brand = rng.integers(0, len(BRANDS), cars)
        self._cars = {
            "plate": pa.array([plate(n) for n in range(cars)]),
            "plate_colour": _drawn(rng, PLATE_COLOURS, cars),
            "body_colour": _drawn(rng, COLOURS, cars),
            "vehicle_type": _drawn(rng, TYPES, cars),
            "brand": pa.array([name for name, _ in BRANDS]).take(pa.array(brand)),
            "series": pa.array([series for _, series in BRANDS]).take(pa.array(brand)),
            "inspection_sticker": _drawn(rng, (YES, NO), cars),
            "tissue_box": _drawn(rng, (YES, NO), cars),
            "driver_belt": _drawn(rng, (YES, YES, YES, NO), cars),
            "passenger_belt": _drawn(rng, (YES, NO), cars),
        }

    @property
    def columns(self) -> list[str]:
        """The keys of the record."""
        return list(VEHICLE_WIRE.values())

    def table(self, rows: Any) -> pa.Table:
        """Some rows, by index."""
        truth = self.truth
        abnormal = truth.abnormal[rows]
        columns = self._devices.columns(truth.camera[rows], _ids("v", rows), truth.capture_ms[rows])
        who, blurred = pa.array(truth.who[rows]), pa.array(abnormal)
        for name in VEHICLE_RECOGNISED:
            columns[name] = pc.if_else(blurred, ABNORMAL, self._cars[name].take(who))
        return _keyed(VEHICLE_WIRE, columns, "plate", abnormal, truth.sent_ms[rows])


class FaceFeed:
    """Captures of faces: the person's features with a little noise."""

    topic = FACES

    def __init__(self, world: World) -> None:
        self.truth = world.faces
        self._devices = Devices.of(world.deployment)
        rng = np.random.default_rng(world.plan.seed + 2)
        self._persons = rng.normal(0.0, 1.0, (world.persons, FACE_FEATURES))
        self._names = pa.array([person(n) for n in range(world.persons)])
        self._seed = world.plan.seed + 3

    @property
    def columns(self) -> list[str]:
        """The keys of the record."""
        return list(FACE_WIRE.values())

    def table(self, rows: Any) -> pa.Table:
        """Some rows, by index."""
        truth = self.truth
        abnormal = truth.abnormal[rows]
        columns = self._devices.columns(truth.camera[rows], _ids("f", rows), truth.capture_ms[rows])
        columns["person"] = pc.if_else(
            pa.array(abnormal), ABNORMAL, self._names.take(pa.array(truth.who[rows]))
        )
        columns["features"] = _lists(self.features(rows))
        return _keyed(FACE_WIRE, columns, "person", abnormal, truth.sent_ms[rows])

    def features(self, rows: Any) -> Any:
        """The features of some rows, rounded as records have them; zeros in abnormal ones."""
        truth = self.truth
        noise = np.sin(np.outer(np.asarray(rows) + self._seed, np.arange(1, FACE_FEATURES + 1)))
        values = np.round(self._persons[truth.who[rows]] + 0.05 * noise, 4)
        values[truth.abnormal[rows]] = 0.0
        return values


def feeds_of(world: World) -> tuple[VehicleFeed, FaceFeed]:
    """The two feeds of devices."""
    return VehicleFeed(world), FaceFeed(world)


def _drawn(rng: np.random.Generator, values: tuple[str, ...], count: int) -> Any:
    return pa.array(values).take(pa.array(rng.integers(0, len(values), count)))


def _lists(values: Any) -> Any:
    flat = pa.array(values.ravel())
    offsets = pa.array(np.arange(0, values.size + 1, values.shape[1], dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, flat)
