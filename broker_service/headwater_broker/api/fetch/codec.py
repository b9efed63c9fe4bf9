"""Fetch requests parsed by struct where they lie in the receive buffer. Versions 4 to 18."""

from __future__ import annotations

import struct

from headwater.wire.primitives import read_uvarint
from headwater_broker.api.fetch_session.cache import ItemKey
from headwater_broker.api.fetch_session.partition import FetchItem, TopicKey

RACK_SINCE = 11
FLEXIBLE = 12
TOPIC_IDS_SINCE = 13
REPLICA_STATE_SINCE = 15
ID_BYTES = 16
TAG_REPLICA_STATE = 1
MAX_BYTES = 2**31 - 1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_REPLICA_STATE = struct.Struct(">iq")
_HEAD_V4 = struct.Struct(">iiiib")
_HEAD_V7 = struct.Struct(">iiiibii")
_HEAD_V15 = struct.Struct(">iiibii")
_ITEM_V4 = struct.Struct(">iqi")
_ITEM_V5 = struct.Struct(">iqqi")
_ITEM_V9 = struct.Struct(">iiqqi")
_ITEM_V12 = struct.Struct(">iiqiqi")


class FetchFrame:
    """A parsed fetch. `replica_id` is -1 for consumers; `rack_id` is where a consumer says it is
    (empty: it does not say)."""

    __slots__ = (
        "forgotten",
        "isolation",
        "items",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "rack_id",
        "replica_epoch",
        "replica_id",
        "session_epoch",
        "session_id",
    )

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int

    def __init__(self) -> None:
        """Bounds and isolation come in every version."""
        self.replica_id = -1
        self.replica_epoch = -1
        self.rack_id = ""
        self.session_id = 0
        self.session_epoch = -1
        self.items: list[FetchItem] = []
        self.forgotten: list[ItemKey] = []


def parse_fetch(view: memoryview, at: int, end: int, version: int) -> FetchFrame:
    """The request at `at`. Raises ValueError, IndexError, struct.error."""
    frame = FetchFrame()
    if version >= FLEXIBLE:
        at = _parse_flexible(frame, view, at, version)
    else:
        at = _parse_plain(frame, view, at, version)
    if at > end:  # more is ignored, as by Kafka
        raise ValueError(f"Fetch v{version}: body ends at {at}, frame at {end}")
    return frame


def _parse_plain(frame: FetchFrame, view: memoryview, at: int, version: int) -> int:
    if version >= 7:
        (
            frame.replica_id,
            frame.max_wait_ms,
            frame.min_bytes,
            frame.max_bytes,
            frame.isolation,
            frame.session_id,
            frame.session_epoch,
        ) = _HEAD_V7.unpack_from(view, at)
        at += 25
    else:
        (
            frame.replica_id,
            frame.max_wait_ms,
            frame.min_bytes,
            frame.max_bytes,
            frame.isolation,
        ) = _HEAD_V4.unpack_from(view, at)
        at += 17
    at = _plain_topics(frame, view, at, version)
    if version >= 7:
        at = _plain_forgotten(frame, view, at)
    if version >= RACK_SINCE:
        frame.rack_id, at = _plain_text(view, at)
    return at


def _plain_topics(frame: FetchFrame, view: memoryview, at: int, version: int) -> int:
    packed = _ITEM_V9 if version >= 9 else _ITEM_V5 if version >= 5 else _ITEM_V4
    add, row_bytes = frame.items.append, packed.size
    count = _INT32.unpack_from(view, at)[0]
    at += 4
    for _ in range(count):
        name, at = _plain_text(view, at)
        partitions = _INT32.unpack_from(view, at)[0]
        at += 4
        for _ in range(partitions):
            row = packed.unpack_from(view, at)
            at += row_bytes
            if version >= 9:
                index, epoch, offset, log_start, max_bytes = row
                item = FetchItem(name, index, offset, max_bytes, epoch, -1, log_start)
            elif version >= 5:
                index, offset, log_start, max_bytes = row
                item = FetchItem(name, index, offset, max_bytes, -1, -1, log_start)
            else:
                index, offset, max_bytes = row
                item = FetchItem(name, index, offset, max_bytes)
            add(item)
    return at


def _plain_text(view: memoryview, at: int) -> tuple[str, int]:
    size = _INT16.unpack_from(view, at)[0]
    if size < 0:  # would go back, and perhaps round for ever
        raise ValueError("a topic or rack without a name")
    stop = at + 2 + size
    return str(view[at + 2 : stop], "utf-8"), stop


def _plain_forgotten(frame: FetchFrame, view: memoryview, at: int) -> int:
    count = _INT32.unpack_from(view, at)[0]
    at += 4
    for _ in range(count):
        name, at = _plain_text(view, at)
        partitions = _INT32.unpack_from(view, at)[0]
        at += 4
        for _ in range(partitions):
            frame.forgotten.append((name, _INT32.unpack_from(view, at)[0]))
            at += 4
    return at


def _parse_flexible(frame: FetchFrame, view: memoryview, at: int, version: int) -> int:
    if version < REPLICA_STATE_SINCE:
        frame.replica_id = _INT32.unpack_from(view, at)[0]
        at += 4
    (
        frame.max_wait_ms,
        frame.min_bytes,
        frame.max_bytes,
        frame.isolation,
        frame.session_id,
        frame.session_epoch,
    ) = _HEAD_V15.unpack_from(view, at)
    count, at = read_uvarint(view, at + 21)
    for _ in range(count - 1):
        topic, at = _topic(view, at, version)
        partitions, at = read_uvarint(view, at)
        for _ in range(partitions - 1):
            index, epoch, offset, last_epoch, log_start, max_bytes = _ITEM_V12.unpack_from(view, at)
            frame.items.append(
                FetchItem(topic, index, offset, max_bytes, epoch, last_epoch, log_start)
            )
            at = skip_tagged(view, at + 32)
        at = skip_tagged(view, at)
    count, at = read_uvarint(view, at)
    for _ in range(count - 1):
        topic, at = _topic(view, at, version)
        partitions, at = read_uvarint(view, at)
        for _ in range(partitions - 1):
            frame.forgotten.append((topic, _INT32.unpack_from(view, at)[0]))
            at += 4
        at = skip_tagged(view, at)
    size, at = read_uvarint(view, at)
    if size == 0:
        raise ValueError("a null rack")
    frame.rack_id = str(view[at : at + size - 1], "utf-8")
    return _request_tags(frame, view, at + size - 1)


def _topic(view: memoryview, at: int, version: int) -> tuple[TopicKey, int]:
    if version >= TOPIC_IDS_SINCE:
        return bytes(view[at : at + ID_BYTES]), at + ID_BYTES
    size, at = read_uvarint(view, at)
    if size == 0:
        raise ValueError("a topic without a name")
    return str(view[at : at + size - 1], "utf-8"), at + size - 1


def skip_tagged(view: memoryview, at: int) -> int:
    """The position behind a tagged-field section that holds nothing we use."""
    count = view[at]
    at += 1
    if count == 0:
        return at
    if count > 0x7F:
        count, at = read_uvarint(view, at - 1)
    for _ in range(count):
        _, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        at += size
    return at


def _request_tags(frame: FetchFrame, view: memoryview, at: int) -> int:
    count, at = read_uvarint(view, at)
    for _ in range(count):
        tag, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        if tag == TAG_REPLICA_STATE:
            frame.replica_id, frame.replica_epoch = _REPLICA_STATE.unpack_from(view, at)
        at += size
    return at
