"""Vehicle and face records for tests of the city's services."""

from __future__ import annotations

from city.clock import DAY_START_MS
from city.fields import ABNORMAL, FACE_FEATURES, FaceRecord, VehicleRecord, city_text

HERE = "330102#1#0#0"
THERE = "330102#2#0#0"


def vehicle(
    number: int,
    plate: str = "浙A00001",
    *,
    at_s: float = 0,
    checkpoint: str = HERE,
    colour: str = "白色",
) -> bytes:
    """A record of a vehicle; abnormal with the plate ABNORMAL."""
    read = {} if plate != ABNORMAL else dict.fromkeys(("plate_colour", "body_colour"), ABNORMAL)
    return VehicleRecord(
        record_id=f"v{number}",
        checkpoint_id=checkpoint,
        plate=plate,
        **{"plate_colour": "蓝色", "body_colour": colour, **read},
        vehicle_type="SUV",
        brand="Jeep",
        series="2014 指南者 2.4L",
        inspection_sticker="是",
        tissue_box="是",
        driver_belt="是",
        passenger_belt="是",
        capture_time=city_text(int(DAY_START_MS + at_s * 1000)),
        device_ip="10.0.0.1",
        recognition_ip="10.1.0.1",
        picture_url=f"file:///pictures/v{number}.jpg",
    ).to_wire()


def face(
    number: int,
    person: str = "P000001",
    *,
    at_s: float = 0,
    features: tuple[float, ...] = (1.0,) + (0.0,) * (FACE_FEATURES - 1),
) -> bytes:
    """A record of a face."""
    return FaceRecord(
        record_id=f"f{number}",
        checkpoint_id=HERE,
        person=person,
        features=features,
        capture_time=city_text(int(DAY_START_MS + at_s * 1000)),
        device_ip="10.0.0.2",
        recognition_ip="10.1.0.1",
        picture_url=f"file:///pictures/f{number}.jpg",
    ).to_wire()
