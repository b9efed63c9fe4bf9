"""The last assignment of a member of the "sticky" assignor, as user data of its subscription
(Java's StickyAssignor). Pure.

That protocol is eager: a member has given up its partitions when it joins, and names them here.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from headwater.client.values import TopicPartition

NO_GENERATION = -1
_INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")


def encode_user_data(partitions: Iterable[TopicPartition], generation: int) -> bytes:
    """Version 1: topics with their partitions, then the generation that had them."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    out = bytearray(_INT32.pack(len(by_topic)))
    for topic, rows in by_topic.items():
        name = topic.encode()
        out += _INT16.pack(len(name)) + name + _INT32.pack(len(rows))
        for row in rows:
            out += _INT32.pack(row)
    return bytes(out + _INT32.pack(generation))


def decode_user_data(
    data: bytes | memoryview | None,
) -> tuple[tuple[TopicPartition, ...], int]:
    """(partitions, generation) of version 1, or of version 0, which has no generation. A member
    whose data cannot be read owned nothing, as Java's assignor has it."""
    if not data:
        return (), NO_GENERATION
    try:
        return _decoded(bytes(data))
    except (struct.error, UnicodeDecodeError):
        return (), NO_GENERATION


def _decoded(data: bytes) -> tuple[tuple[TopicPartition, ...], int]:
    found: list[TopicPartition] = []
    (topics,) = _INT32.unpack_from(data, 0)
    at = _INT32.size
    for _ in range(topics):
        (size,) = _INT16.unpack_from(data, at)
        at += _INT16.size
        topic = data[at : at + size].decode()
        at += size
        (count,) = _INT32.unpack_from(data, at)
        at += _INT32.size
        for _ in range(count):
            found.append(TopicPartition(topic, _INT32.unpack_from(data, at)[0]))
            at += _INT32.size
    generation = _INT32.unpack_from(data, at)[0] if len(data) >= at + _INT32.size else NO_GENERATION
    return tuple(found), generation
