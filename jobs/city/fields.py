"""The city's data: topics with partitions and keys, JSON keys, table columns, values.

The records of cameras have the keys of the book they come from (Chinese); tables have English
columns. Producers and consumers share these names and nothing else.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from typing import Any, Self

ABNORMAL = "识别异常"
"""The value of each recognised field of a picture that could not be read."""
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
TIME_CHARACTERS = 19

VEHICLES = "vehicles"
FACES = "faces"
VIDEO_OBJECTS = "video-objects"
VIDEO_INSTRUCTIONS = "video-instructions"
WATCH_INSTRUCTIONS = "watch-instructions"
STATISTICS_INSTRUCTIONS = "statistics-instructions"
TRACKS = "tracks"
TRACKS_BATCH = "tracks-batch"
STATISTICS = "statistics"
ALARMS = "alarms"

DATA_MESSAGE_BYTES_MAX = 65_536
"""max.message.bytes of data topics: pictures and videos go to storage, records name their URL."""


@dataclass(frozen=True)
class TopicPlan:
    """A topic: its partitions, what its key is, and whether it carries data of devices."""

    name: str
    partitions: int
    key: str
    is_data: bool

    @property
    def configs(self) -> dict[str, str]:
        """The topic's configs. Records have the city's time, which is long ago: none expires."""
        configs = {"retention.ms": "-1"}
        if self.is_data:
            configs["max.message.bytes"] = str(DATA_MESSAGE_BYTES_MAX)
        return configs


TOPICS = (
    TopicPlan(VEHICLES, 6, "plate; the device for an abnormal record", True),
    TopicPlan(FACES, 4, "person; the device for an abnormal record", True),
    TopicPlan(VIDEO_OBJECTS, 2, "video", True),
    TopicPlan(VIDEO_INSTRUCTIONS, 1, "instruction", False),
    TopicPlan(WATCH_INSTRUCTIONS, 1, "instruction", False),
    TopicPlan(STATISTICS_INSTRUCTIONS, 1, "instruction", False),
    TopicPlan(TRACKS, 3, "instruction", False),
    TopicPlan(TRACKS_BATCH, 3, "instruction", False),
    TopicPlan(STATISTICS, 1, "instruction", False),
    TopicPlan(ALARMS, 1, "the alarm's key", False),
)
DATA_TOPICS = tuple(plan.name for plan in TOPICS if plan.is_data)
"""What a mirror to another site copies; instructions stay at their site."""

VEHICLE_WIRE = {
    "record_id": "record_id",
    "checkpoint_id": "卡口编号",
    "plate": "车牌号码",
    "plate_colour": "车牌颜色",
    "body_colour": "车辆颜色",
    "vehicle_type": "车型类别",
    "brand": "车辆品牌",
    "series": "车系",
    "inspection_sticker": "年检标识",
    "tissue_box": "纸巾盒",
    "driver_belt": "驾驶位是否系安全带",
    "passenger_belt": "副驾驶位是否系安全带",
    "capture_time": "抓拍时间",
    "device_ip": "抓拍设备地址",
    "recognition_ip": "后端图片识别服务器地址",
    "picture_url": "picture_url",
}
"""Column of the table -> key of the record."""
VEHICLE_RECOGNISED = (
    "plate",
    "plate_colour",
    "body_colour",
    "vehicle_type",
    "brand",
    "series",
    "inspection_sticker",
    "tissue_box",
    "driver_belt",
    "passenger_belt",
)
"""What recognition reads from the picture; all are ABNORMAL when it cannot."""

FACE_WIRE = {
    "record_id": "record_id",
    "checkpoint_id": "卡口编号",
    "person": "人员编号",
    "features": "人脸特征",
    "capture_time": "抓拍时间",
    "device_ip": "抓拍设备地址",
    "recognition_ip": "后端图片识别服务器地址",
    "picture_url": "picture_url",
}
"""Column of the table -> key of the record."""
FACE_FEATURES = 16
"""Numbers that describe a face; an abnormal record has zeros."""

VIDEO_WIRE = {
    "object_id": "object_id",
    "video_id": "video_id",
    "instruction_id": "instruction_id",
    "kind": "kind",
    "first_frame": "first_frame",
    "last_frame": "last_frame",
    "track": "track",
    "clip_url": "clip_url",
}

TIMES = ("sent_time", "ingest_time")
"""Columns that only the tables have: when the record was sent (its timestamp) and stored."""


def city_text(city_ms: int) -> str:
    """A city time as records spell it."""
    return datetime.fromtimestamp(city_ms / 1000, UTC).strftime(TIME_FORMAT)


def city_ms_of(text: str) -> int:
    """The city time, in milliseconds, that a record spells. Raises ValueError."""
    if len(text) != TIME_CHARACTERS or text[10] != " ":
        raise ValueError(f"{text!r} is no time: give it as 2017-08-24 08:30:00")
    # A twentieth of `strptime`'s time.
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@dataclass(frozen=True)
class VehicleRecord:
    """One capture of a vehicle, as read from its topic."""

    record_id: str
    checkpoint_id: str
    plate: str
    plate_colour: str
    body_colour: str
    vehicle_type: str
    brand: str
    series: str
    inspection_sticker: str
    tissue_box: str
    driver_belt: str
    passenger_belt: str
    capture_time: str
    device_ip: str
    recognition_ip: str
    picture_url: str

    @classmethod
    def from_wire(cls, value: bytes) -> Self:
        """The record of a message's value."""
        row = json.loads(value)
        return cls(**{name: row[key] for name, key in VEHICLE_WIRE.items()})

    def to_wire(self) -> bytes:
        """The message's value."""
        return _json({key: getattr(self, name) for name, key in VEHICLE_WIRE.items()})

    @property
    def is_abnormal(self) -> bool:
        """True when recognition could not read the picture."""
        return self.plate == ABNORMAL


@dataclass(frozen=True)
class FaceRecord:
    """One capture of a face, as read from its topic."""

    record_id: str
    checkpoint_id: str
    person: str
    features: tuple[float, ...]
    capture_time: str
    device_ip: str
    recognition_ip: str
    picture_url: str

    @classmethod
    def from_wire(cls, value: bytes) -> Self:
        """The record of a message's value."""
        row = json.loads(value)
        values = {name: row[key] for name, key in FACE_WIRE.items()}
        return cls(**{**values, "features": tuple(values["features"])})

    def to_wire(self) -> bytes:
        """The message's value."""
        return _json({key: getattr(self, name) for name, key in FACE_WIRE.items()})

    @property
    def is_abnormal(self) -> bool:
        """True when recognition could not read the picture."""
        return self.person == ABNORMAL


class JsonValue:
    """A dataclass whose message is a JSON object with the dataclass's own names."""

    @classmethod
    def from_wire(cls, value: bytes) -> Self:
        """The value of a message; keys that it does not know are left out."""
        row = json.loads(value)
        known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
        return cls(**{name: cell for name, cell in row.items() if name in known})

    def to_wire(self) -> bytes:
        """The message's value."""
        return _json(asdict(self))  # type: ignore[call-overload]


@dataclass(frozen=True)
class VideoObject(JsonValue):
    """Something that moved in a video: from when to when, and where; `track` is x, y per frame."""

    object_id: str
    video_id: str
    instruction_id: str
    kind: str
    first_frame: int
    last_frame: int
    track: list[list[int]]
    clip_url: str


@dataclass(frozen=True)
class VideoInstruction(JsonValue):
    """An operator's "analyse this video": its URL, never its frames."""

    instruction_id: str
    video_id: str
    video_url: str
    user: str


@dataclass(frozen=True)
class Alarm(JsonValue):
    """Something that operators must see: `flow` found it, `key` tells one opening from the next."""

    flow: str
    key: str
    city_time: str
    text: str
    is_open: bool = True


def _json(row: dict[str, Any]) -> bytes:
    return json.dumps(row, ensure_ascii=False, separators=(",", ":")).encode()
