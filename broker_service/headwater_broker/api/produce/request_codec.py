"""Parsers of Produce requests: struct unpacking in the receive buffer.

`parse_plain` and `parse_flexible` return (transactional id, acks, timeout_ms, topics). A topic is
(encoded name or id, key, entries): the response repeats the encoded field. An entry is (partition,
start, stop) of the records, or (partition, -1, -1) for null. The parsers raise ValueError,
IndexError and struct.error. They ignore bytes after the last field, as Kafka does.
"""

from __future__ import annotations

import struct

from headwater.wire.primitives import read_tagged, read_uvarint

Entry = tuple[int, int, int]
TopicEntries = tuple[bytes, str | bytes, list[Entry]]
"""The key is the topic's name, or from version 13 on the 16 bytes of its id."""
ProduceFrame = tuple[str | None, int, int, list[TopicEntries]]

SingleFrame = tuple[str | None, bytes, str | bytes, int, int, int, int, int]
"""Transactional id, encoded topic and its key, partition, start and stop of its records, acks,
timeout_ms."""

ID_BYTES = 16
TOPIC_IDS_SINCE = 13

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PLAIN_HEAD = struct.Struct(">hhiih")
"""Size of the transactional id (-1: null), acks, timeout, number of topics, size of a name."""
_plain_head = _PLAIN_HEAD.unpack_from
_FLEXIBLE_HEAD = struct.Struct(">BhiBB")
"""_PLAIN_HEAD in compact encoding, for ids and names of at most 126 bytes. Since version 13 the
last byte is the first one of a topic id."""
_flexible_head = _FLEXIBLE_HEAD.unpack_from
_one_flexible_entry = struct.Struct(">Bi").unpack_from
"""Number of partitions plus one, partition index."""
_flexible_entry = struct.Struct(">iBB").unpack_from
"""Partition index, the first two bytes of the size of its records; tagged fields follow."""
_three_bytes = struct.Struct("BBB").unpack_from
_NO_TAGS = b"\0\0\0"
"""Empty tagged fields of the partition, the topic and the request."""
_one_entry = struct.Struct(">iii").unpack_from
"""Partitions, index, size of the records."""
_ACKS_TIMEOUT = struct.Struct(">hi")
_ACKS_TIMEOUT_COUNT = struct.Struct(">hii")
_INDEX_SIZE = struct.Struct(">ii")


def parse_single(view: memoryview, at: int, end: int) -> SingleFrame | None:
    """A request with one partition whose records end the request, as most requests are.

    Versions 3 to 8; None for other requests.
    """
    if end - at < _PLAIN_HEAD.size:
        return None
    size, acks, timeout_ms, count, name_size = _plain_head(view, at)
    transactional_id = None
    if size != -1:
        if size < 0 or end - at - size < _PLAIN_HEAD.size:
            return None
        transactional_id = str(view[at + 2 : at + 2 + size], "utf-8")
        at += size
        _, acks, timeout_ms, count, name_size = _plain_head(view, at)
    stop = at + 14 + name_size
    if count != 1 or name_size < 0 or stop + 12 > end:
        return None
    count, index, size = _one_entry(view, stop)
    start = stop + 12
    if count != 1 or size < 0 or start + size != end:
        return None
    field = bytes(view[at + 12 : stop])
    return transactional_id, field, str(field[2:], "utf-8"), index, start, end, acks, timeout_ms


def parse_single_flexible(view: memoryview, at: int, end: int, version: int) -> SingleFrame | None:
    """`parse_single` for versions 9 to 13; also None for requests with tagged fields."""
    if end - at < _FLEXIBLE_HEAD.size:
        return None
    size, acks, timeout_ms, count, name_size = _flexible_head(view, at)
    transactional_id = None
    if size:
        if size > 0x7F or end - at - size < _FLEXIBLE_HEAD.size:
            return None
        transactional_id = str(view[at + 1 : at + size], "utf-8")
        at += size - 1
        _, acks, timeout_ms, count, name_size = _flexible_head(view, at)
    if version >= TOPIC_IDS_SINCE:
        stop = at + 8 + ID_BYTES
    else:
        stop = at + 8 + name_size
        if not 0 < name_size < 0x80:
            return None
    if count != 2 or stop + 8 > end:
        return None
    count, index = _one_flexible_entry(view, stop)
    start = stop + 8
    size, more, most = _three_bytes(view, stop + 5)
    if size > 0x7F < more and most < 0x80:  # 16 KB to 2 MB, at a third of the cost of read_uvarint
        size = size - 0x80 | (more - 0x80) << 7 | most << 14
    else:
        size, start = read_uvarint(view, stop + 5)
    records_end = start + size - 1
    if count != 2 or not size or records_end + 3 != end or view[records_end:end] != _NO_TAGS:
        return None
    field = bytes(view[at + 8 : stop])
    key = field if version >= TOPIC_IDS_SINCE else str(field[1:], "utf-8")
    return transactional_id, field, key, index, start, records_end, acks, timeout_ms


def parse_plain(view: memoryview, at: int, end: int, version: int) -> ProduceFrame:
    """Versions 3 to 8."""
    size = _INT16.unpack_from(view, at)[0]
    at += 2
    transactional_id = None
    if size >= 0:
        transactional_id = str(view[at : at + size], "utf-8")
        at += size
    acks, timeout_ms, count = _ACKS_TIMEOUT_COUNT.unpack_from(view, at)
    at += 10
    topics: list[TopicEntries] = []
    for _ in range(count):
        size = _INT16.unpack_from(view, at)[0]
        if size < 0:  # parsing would go back, perhaps in an endless loop
            raise ValueError("a topic without a name")
        stop = at + 2 + size
        field = bytes(view[at:stop])
        partitions = _INT32.unpack_from(view, stop)[0]
        at = stop + 4
        entries: list[Entry] = []
        for _ in range(partitions):
            index, size = _INDEX_SIZE.unpack_from(view, at)
            at += 8
            if size >= 0:
                entries.append((index, at, at + size))
                at += size
            else:
                entries.append((index, -1, -1))
        topics.append((field, field[2:].decode(), entries))
    if at > end:
        raise ValueError(f"Produce v{version}: body ends at {at}, frame at {end}")
    return transactional_id, acks, timeout_ms, topics


def parse_flexible(view: memoryview, at: int, end: int, version: int) -> ProduceFrame:
    """Versions 9 to 13: compact encodings and tagged fields (KIP-482); 13 names topics by id."""
    size, at = read_uvarint(view, at)
    transactional_id = None
    if size:
        transactional_id = str(view[at : at + size - 1], "utf-8")
        at += size - 1
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, at)
    count, at = read_uvarint(view, at + 6)
    topics: list[TopicEntries] = []
    for _ in range(count - 1):
        field, key, at = _topic(view, at, version)
        partitions, at = read_uvarint(view, at)
        entries: list[Entry] = []
        for _ in range(partitions - 1):
            index, size, more = _flexible_entry(view, at)
            at += 5
            if size > 0x7F:  # 127 bytes to 16 KB, as most often, without a call
                if more > 0x7F:
                    size, at = read_uvarint(view, at - 1)
                else:
                    size = size - 0x80 | more << 7
                    at += 1
            if size:
                entries.append((index, at, at + size - 1))
                at += size - 1
            else:
                entries.append((index, -1, -1))
            at = at + 1 if view[at] == 0 else read_tagged(view, at, {}, {})
        at = at + 1 if view[at] == 0 else read_tagged(view, at, {}, {})
        topics.append((field, key, entries))
    at = at + 1 if view[at] == 0 else read_tagged(view, at, {}, {})
    if at > end:
        raise ValueError(f"Produce v{version}: body ends at {at}, frame at {end}")
    return transactional_id, acks, timeout_ms, topics


def _topic(view: memoryview, at: int, version: int) -> tuple[bytes, str | bytes, int]:
    if version >= TOPIC_IDS_SINCE:
        field = bytes(view[at : at + ID_BYTES])
        return field, field, at + ID_BYTES
    size, start = read_uvarint(view, at)
    if size == 0:
        raise ValueError("a topic without a name")
    stop = start + size - 1
    field = bytes(view[at:stop])
    return field, field[start - at :].decode(), stop
