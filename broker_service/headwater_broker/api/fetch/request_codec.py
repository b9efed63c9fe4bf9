"""Fetch requests, versions 4 to 18: parsed by struct where they lie in the receive buffer.

`parse_fetch` reads every request. `parse_plain` reads in one pass what nearly every consumer sends,
and gives None for any other request: a consumer that names no rack, no forgotten partitions and no
tagged fields.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headwater.wire.primitives import read_uvarint
from headwater_broker.api.fetch_session.cache import ItemKey
from headwater_broker.api.fetch_session.partition import FetchItem, TopicKey

SESSIONS_SINCE = 7
ZSTD_SINCE = 10
"""Readers of earlier versions are not served a topic of compression.type=zstd (KIP-110)."""
RACK_SINCE = 11
FLEXIBLE = 12
TOPIC_IDS_SINCE = 13
REPLICA_STATE_SINCE = 15
ID_BYTES = 16
TAG_REPLICA_STATE = 1
MAX_BYTES = 2**31 - 1
CONSUMER = -1
"""Replica id of a consumer."""
NONE = -1
"""A leader epoch, a last fetched epoch or a log start offset that is not given."""

_make = tuple.__new__
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_REPLICA_STATE = struct.Struct(">iq")
# Replica id (not since 15), max wait, min bytes, max bytes, isolation level, session id and epoch
# (since 7).
_HEAD_V4 = struct.Struct(">iiiib")
_HEAD_V7 = struct.Struct(">iiiibii")
_HEAD_V15 = struct.Struct(">iiibii")
# Index, leader epoch (since 9), fetch offset, last fetched epoch (since 12), log start offset
# (since 5), max bytes.
_PARTITION_V4 = struct.Struct(">iqi")
_PARTITION_V5 = struct.Struct(">iqqi")
_PARTITION_V9 = struct.Struct(">iiqqi")
_PARTITION_V12 = struct.Struct(">iiqiqi")
# One partition alone: the head, topics, length of the name (since 12 one more; since 13 an id)...
_ONE_V4 = struct.Struct(_HEAD_V4.format + "ih")
_ONE_V7 = struct.Struct(_HEAD_V7.format + "ih")
_one_v12 = struct.Struct(_HEAD_V7.format + "B").unpack_from
_one_v15 = struct.Struct(_HEAD_V15.format + "B").unpack_from
# ... and partitions, the partition.
_ROW_V4 = struct.Struct(">i" + _PARTITION_V4.format[1:])
_ROW_V5 = struct.Struct(">i" + _PARTITION_V5.format[1:])
_ROW_V9 = struct.Struct(">i" + _PARTITION_V9.format[1:])
_row_v12 = struct.Struct(">B" + _PARTITION_V12.format[1:]).unpack_from
_ENDS = {v: bytes(0 if v < SESSIONS_SINCE else 4 if v < RACK_SINCE else 6) for v in range(4, 12)}
"""How a plain request ends: no forgotten topics (since 7), no rack (since 11)."""
_END_FLEXIBLE = b"\1\1\0"
"""The same since version 12, and no tagged fields."""
_END_ONE_FLEXIBLE = b"\0\0" + _END_FLEXIBLE

Head = tuple[int, int, int, int, int, int, int]
"""Replica id, max wait, min bytes, max bytes, isolation level, session id, session epoch."""


PlainPartition = tuple[bytes, TopicKey, int, int, int, int, int, int]
"""One partition of a request: the topic as it came (the response repeats it) and its name or id,
index, leader epoch, fetch offset, last fetched epoch, log start offset, max bytes."""


class PlainFetch(NamedTuple):
    """A fetch of a consumer that names no rack, forgets nothing and has no tagged fields."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    partitions: list[PlainPartition]


class FetchFrame:
    """A parsed fetch. `replica_id` is negative for consumers; `rack_id` is the rack of a consumer
    (empty: it names none)."""

    __slots__ = (
        "forgotten", "isolation", "items", "max_bytes", "max_wait_ms", "min_bytes", "rack_id",
        "replica_epoch", "replica_id", "session_epoch", "session_id",
    )  # fmt: skip

    def __init__(self, head: Head, items: list[FetchItem]) -> None:
        (
            self.replica_id,
            self.max_wait_ms,
            self.min_bytes,
            self.max_bytes,
            self.isolation,
            self.session_id,
            self.session_epoch,
        ) = head
        self.items = items
        self.forgotten: list[ItemKey] = []
        self.replica_epoch = -1
        self.rack_id = ""

    @classmethod
    def of(cls, plain: PlainFetch) -> FetchFrame:
        """The same fetch as `parse_fetch` gives it."""
        return cls((CONSUMER, *plain[:6]), [item_of(row) for row in plain.partitions])


def item_of(row: PlainPartition) -> FetchItem:
    """The partition as a fetch session remembers it."""
    _, topic, index, leader_epoch, offset, last_epoch, log_start, most = row
    return FetchItem(topic, index, offset, most, leader_epoch, last_epoch, log_start)


def parse_fetch(view: memoryview, at: int, end: int, version: int) -> FetchFrame:
    """The request at `at`. Raises ValueError, IndexError, struct.error."""
    head, at = _head(view, at, version)
    rows: list[PlainPartition] = []
    at = _topics(rows, view, at, version)
    frame = FetchFrame(head, [item_of(row) for row in rows])
    if version >= SESSIONS_SINCE:
        at = _forgotten(frame, view, at, version)
    if version >= RACK_SINCE:
        rack, at = _text(view, at, version)
        frame.rack_id = str(rack, "utf-8")
    if version >= FLEXIBLE:
        at = _request_tags(frame, view, at)
    if at > end:  # more is ignored, as by Kafka
        raise ValueError(f"Fetch v{version}: body ends at {at}, frame at {end}")
    return frame


def parse_plain(view: memoryview, at: int, end: int, version: int) -> PlainFetch | None:
    """The request at `at` if it is plain, else None. Raises as `parse_fetch` does."""
    parse_one = _parse_one_flexible if version >= FLEXIBLE else _parse_one
    plain = parse_one(view, at, end, version)
    if plain is not None:
        return plain
    view = view[:end]
    head, at = _head(view, at, version)
    if head[0] != CONSUMER:
        return None
    rows: list[PlainPartition] = []
    at = _topics(rows, view, at, version)
    tail = _END_FLEXIBLE if version >= FLEXIBLE else _ENDS[version]
    if at + len(tail) != end or view[at:] != tail:
        return None
    return _make(PlainFetch, (*head[1:], rows))


def _parse_one(view: memoryview, at: int, end: int, version: int) -> PlainFetch | None:
    """A plain fetch of one partition, versions 4 to 11, in two steps."""
    layout = _ONE_V7 if version >= SESSIONS_SINCE else _ONE_V4
    name_at = at + layout.size
    if name_at > end:
        return None
    session_id, session_epoch = 0, NONE
    if version >= SESSIONS_SINCE:
        (
            replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch,
            topics, name_size,
        ) = layout.unpack_from(view, at)  # fmt: skip
    else:
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation, topics, name_size = (
            layout.unpack_from(view, at)
        )
    row_at = name_at + name_size
    layout = _ROW_V9 if version >= 9 else _ROW_V5 if version >= 5 else _ROW_V4
    tail_at, tail = row_at + layout.size, _ENDS[version]
    if (
        replica_id != CONSUMER
        or topics != 1
        or name_size < 0
        or tail_at + len(tail) != end
        or view[tail_at:end] != tail
    ):
        return None
    epoch = log_start = NONE
    if version >= 9:
        partitions, index, epoch, offset, log_start, most = layout.unpack_from(view, row_at)
    elif version >= 5:
        partitions, index, offset, log_start, most = layout.unpack_from(view, row_at)
    else:
        partitions, index, offset, most = layout.unpack_from(view, row_at)
    if partitions != 1:
        return None
    field = bytes(view[name_at - 2 : row_at])
    row = (field, field[2:].decode(), index, epoch, offset, NONE, log_start, most)
    values = (max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, [row])
    return _make(PlainFetch, values)


def _parse_one_flexible(view: memoryview, at: int, end: int, version: int) -> PlainFetch | None:
    """A plain fetch of one partition, since version 12, in two steps. A name is of at most 126
    bytes here."""
    replica_id = CONSUMER
    if version >= REPLICA_STATE_SINCE:
        topic_at = at + 22
        if topic_at >= end:
            return None
        max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, topics = _one_v15(
            view, at
        )
    else:
        topic_at = at + 26
        if topic_at >= end:
            return None
        (
            replica_id, max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch,
            topics,
        ) = _one_v12(view, at)  # fmt: skip
    if version >= TOPIC_IDS_SINCE:
        row_at = topic_at + ID_BYTES
    else:
        row_at = topic_at + view[topic_at]  # its own byte, and one less of the name
    # Behind the partition: its tags, those of its topic, and what ends a plain request.
    tail_at = row_at + 33
    if (
        replica_id != CONSUMER
        or topics != 2
        or tail_at + 5 != end
        or view[tail_at:end] != _END_ONE_FLEXIBLE
    ):
        return None
    partitions, index, epoch, offset, last_epoch, log_start, most = _row_v12(view, row_at)
    if partitions != 2:
        return None
    field = bytes(view[topic_at:row_at])
    topic = field if version >= TOPIC_IDS_SINCE else field[1:].decode()
    row = (field, topic, index, epoch, offset, last_epoch, log_start, most)
    values = (max_wait_ms, min_bytes, max_bytes, isolation, session_id, session_epoch, [row])
    return _make(PlainFetch, values)


def _head(view: memoryview, at: int, version: int) -> tuple[Head, int]:
    """The fields before the topics, and the position behind them."""
    if version >= REPLICA_STATE_SINCE:
        return (CONSUMER, *_HEAD_V15.unpack_from(view, at)), at + 21
    if version >= SESSIONS_SINCE:
        return _HEAD_V7.unpack_from(view, at), at + 25
    return (*_HEAD_V4.unpack_from(view, at), 0, -1), at + 17


def _topics(rows: list[PlainPartition], view: memoryview, at: int, version: int) -> int:
    """Append the partitions at `at` to `rows`; the position behind them."""
    if version >= FLEXIBLE:
        return _flexible_topics(rows, view, at, version)
    layout = _PARTITION_V9 if version >= 9 else _PARTITION_V5 if version >= 5 else _PARTITION_V4
    count = _INT32.unpack_from(view, at)[0]
    at += 4
    for _ in range(count):
        start = at
        text, at = _text(view, at, version)
        field, topic = bytes(view[start:at]), str(text, "utf-8")
        partitions = _INT32.unpack_from(view, at)[0]
        at += 4
        for _ in range(partitions):
            row = layout.unpack_from(view, at)
            at += layout.size
            epoch = log_start = NONE
            if version >= 9:
                index, epoch, offset, log_start, max_bytes = row
            elif version >= 5:
                index, offset, log_start, max_bytes = row
            else:
                index, offset, max_bytes = row
            rows.append((field, topic, index, epoch, offset, NONE, log_start, max_bytes))
    return at


def _flexible_topics(rows: list[PlainPartition], view: memoryview, at: int, version: int) -> int:
    count, at = (view[at], at + 1) if view[at] < 0x80 else read_uvarint(view, at)
    for _ in range(count - 1):
        topic: TopicKey
        if version >= TOPIC_IDS_SINCE:
            topic = field = bytes(view[at : at + ID_BYTES])
            at += ID_BYTES
        else:
            start = at
            text, at = _text(view, at, version)
            field, topic = bytes(view[start:at]), str(text, "utf-8")
        partitions, at = (view[at], at + 1) if view[at] < 0x80 else read_uvarint(view, at)
        for _ in range(partitions - 1):
            rows.append((field, topic, *_PARTITION_V12.unpack_from(view, at)))
            at += 32
            at = at + 1 if view[at] == 0 else _skip_tagged(view, at)
        at = at + 1 if view[at] == 0 else _skip_tagged(view, at)
    return at


def _text(view: memoryview, at: int, version: int) -> tuple[memoryview, int]:
    """The topic name or rack at `at`, and the position behind it."""
    if version >= FLEXIBLE:
        size, at = (view[at], at + 1) if view[at] < 0x80 else read_uvarint(view, at)
        size -= 1
    else:
        size = _INT16.unpack_from(view, at)[0]
        at += 2
    if size < 0:  # a negative size would lead back, and perhaps round for ever
        raise ValueError("a topic or rack that is null")
    return view[at : at + size], at + size


def _forgotten(frame: FetchFrame, view: memoryview, at: int, version: int) -> int:
    """The partitions that the session is to forget (KIP-227)."""
    topics, at = _count(view, at, version)
    for _ in range(topics):
        topic: TopicKey
        if version >= TOPIC_IDS_SINCE:
            topic, at = bytes(view[at : at + ID_BYTES]), at + ID_BYTES
        else:
            text, at = _text(view, at, version)
            topic = str(text, "utf-8")
        partitions, at = _count(view, at, version)
        for _ in range(partitions):
            frame.forgotten.append((topic, _INT32.unpack_from(view, at)[0]))
            at += 4
        if version >= FLEXIBLE:
            at = _skip_tagged(view, at)
    return at


def _count(view: memoryview, at: int, version: int) -> tuple[int, int]:
    if version >= FLEXIBLE:
        count, at = read_uvarint(view, at)
        return count - 1, at
    return _INT32.unpack_from(view, at)[0], at + 4


def _skip_tagged(view: memoryview, at: int) -> int:
    """The position behind tagged fields, none of which matters."""
    count, at = read_uvarint(view, at)
    for _ in range(count):
        _, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        at += size
    return at


def _request_tags(frame: FetchFrame, view: memoryview, at: int) -> int:
    """The tagged fields of the request: a follower's replica id and epoch since version 15."""
    count, at = read_uvarint(view, at)
    for _ in range(count):
        tag, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        if tag == TAG_REPLICA_STATE:
            frame.replica_id, frame.replica_epoch = _REPLICA_STATE.unpack_from(view, at)
        at += size
    return at
