"""The commonest small fetch, answered in one go: a consumer without a session asks for one
partition of this leader, and records are there.

It costs a quarter less CPU than by way of `FetchJob`, whose steps sessions, followers, racks,
waiting, several partitions and every error need. Whatever is not plain is left to that: None is
returned, and nothing has been counted. A test holds each reply against `FetchJob`'s, byte for byte.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.records.batch import codec_of
from headwater.wire.primitives import write_uvarint
from headwater_broker.api.context import Services
from headwater_broker.api.fetch.codec import FLEXIBLE, ID_BYTES, RACK_SINCE, TOPIC_IDS_SINCE
from headwater_broker.api.fetch.read import ZSTD, ZSTD_SINCE
from headwater_broker.api.fetch.replica_selector import LEADER
from headwater_broker.api.fetch.responses import part_of_file
from headwater_broker.api.fetch_session.cache import FINAL_EPOCH, NO_SESSION
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.replies import FilePart, Part
from headwater_broker.replica.partition import Partition

CONSUMER = -1
SESSIONLESS = (NO_SESSION, FINAL_EPOCH)
"""Session id and epoch of a full fetch that opens no session (KIP-227)."""
ANY_EPOCH = -1
_READ = Operation.READ
_TOPIC = ResourceType.TOPIC
_make = tuple.__new__

# Requests. Up to the topic: replica id, max wait, min and max bytes, isolation, since version 7
# session id and epoch, how many topics, size of the name.
_ASK_V4 = struct.Struct(">iiiibih")
_ASK_V7 = struct.Struct(">iiiibiiih")
_ASK_V12 = struct.Struct(">iiiibiiB")
_ASK_V15 = struct.Struct(">iiibiiB")
# How many partitions; index, leader epoch since 9, offset, last epoch since 12, log start since 5,
# max bytes.
_ITEM_V4 = struct.Struct(">iiqi")
_ITEM_V5 = struct.Struct(">iiqqi")
_ITEM_V9 = struct.Struct(">iiiqqi")
_ITEM_V12 = struct.Struct(">Biiqiqi")
_ENDS = {7: bytes(4), 8: bytes(4), 9: bytes(4), 10: bytes(4), 11: bytes(6)}
"""Nothing forgotten, since 11 no rack."""
_END_FLEXIBLE = b"\0\0\1\1\0"
"""Tags of the partition and of the topic, nothing forgotten, no rack, tags of the request."""

# Replies. Size, correlation id, throttle time, since 7 error and session; how many topics.
_HEAD_V4 = struct.Struct(">iiii")
_HEAD_V7 = struct.Struct(">iiihii")
_HEAD_V12 = struct.Struct(">iiBihiB")
# How many partitions; index, error, high watermark, last stable offset, log start since 5, aborted
# transactions, preferred replica since 11, and (but for 12, a varint) the size of the records.
_ROW_V4 = struct.Struct(">iihqqii")
_ROW_V5 = struct.Struct(">iihqqqii")
_ROW_V11 = struct.Struct(">iihqqqiii")
_ROW_V12 = struct.Struct(">BihqqqBi")


class _Asked(NamedTuple):
    """A plain fetch. `field` is the topic as it came, to be repeated in the reply."""

    field: bytes
    key: str | bytes
    partition: int
    leader_epoch: int
    offset: int
    partition_max_bytes: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int


def answer_plain(
    peer: Peer, view: memoryview, at: int, end: int, version: int, correlation_id: int
) -> bytes | list[Part] | None:
    """The framed reply; None when this fetch is not plain, or waits, or fails."""
    parse = _parse_flexible if version >= FLEXIBLE else _parse
    asked = parse(view, at, end, version)
    if asked is None:
        return None
    services, key, epoch, offset = peer.services, asked.key, asked.leader_epoch, asked.offset
    name = key if isinstance(key, str) else services.replicas.topic_ids.get(key, "")
    partition = services.replicas.partitions.get((name, asked.partition))
    if (
        partition is None
        or not partition.is_leader
        or (epoch != ANY_EPOCH and epoch != partition.leader_epoch)
        or not partition.log.local_log_start_offset <= offset < partition.high_watermark
        or not peer.session.allows(_READ, _TOPIC, name)
    ):
        return None
    payload = _records(services, partition, asked, version)
    if payload is None:
        return None
    size = payload.size if isinstance(payload, FilePart) else len(payload)
    meter = services.meters.topics.get(name) or services.meters.topic(name)
    meter.bytes_out += size
    encode = _encode_flexible if version >= FLEXIBLE else _encode
    head = encode(partition, asked, version, correlation_id, size)
    # Behind the records come the tags of the partition, of the topic and of the reply.
    if isinstance(payload, FilePart):
        return [head, payload, bytes(3)] if version >= FLEXIBLE else [head, payload]
    return head + payload + bytes(3) if version >= FLEXIBLE else head + payload


def _records(services: Services, partition: Partition, asked: _Asked, version: int) -> Part | None:
    """The records, or None: too few to answer with, on a cold disk, or not to be had."""
    _, _, _, _, offset, limit, wait_ms, min_bytes, max_bytes, isolation = asked
    most = services.config.fetch_max_bytes
    if max_bytes < most:
        most = max_bytes
    if limit > most:
        limit = most
    try:
        part = partition.read(offset, limit, isolation)
        size = part.size_bytes
        if not size or (size < min_bytes and size < most and wait_ms > 0):
            return None
        if isolation and partition.log.aborted_transactions(offset, partition.last_stable_offset):
            return None
        payload = part.data if part.data is not None else part_of_file(services, partition, part)
    except (KafkaError, OSError):
        return None  # it is read again by FetchJob, which tells what failed
    if version < ZSTD_SINCE and (not isinstance(payload, bytes) or codec_of(payload) == ZSTD):
        return None
    return payload


def _parse(view: memoryview, at: int, end: int, version: int) -> _Asked | None:
    """Versions 4 to 11."""
    ask = _ASK_V7 if version >= 7 else _ASK_V4
    name_at = at + ask.size
    if name_at > end:
        return None
    if version >= 7:
        (
            replica, wait_ms, min_bytes, max_bytes, isolation, session, epoch, topics, name_size
        ) = ask.unpack_from(view, at)  # fmt: skip
        if (session, epoch) != SESSIONLESS:
            return None
    else:
        replica, wait_ms, min_bytes, max_bytes, isolation, topics, name_size = ask.unpack_from(
            view, at
        )
    item = _ITEM_V9 if version >= 9 else _ITEM_V5 if version >= 5 else _ITEM_V4
    item_at = name_at + name_size
    item_end = item_at + item.size
    ends = _ENDS.get(version, b"")
    if (
        replica != CONSUMER
        or topics != 1
        or name_size <= 0
        or item_end + len(ends) != end
        or view[item_end:end] != ends
    ):
        return None
    leader_epoch = ANY_EPOCH
    if version >= 9:
        partitions, index, leader_epoch, offset, _, most = item.unpack_from(view, item_at)
    elif version >= 5:
        partitions, index, offset, _, most = item.unpack_from(view, item_at)
    else:
        partitions, index, offset, most = item.unpack_from(view, item_at)
    if partitions != 1:
        return None
    field = bytes(view[name_at - 2 : item_at])
    asked = (
        field, field[2:].decode(), index, leader_epoch, offset, most,
        wait_ms, min_bytes, max_bytes, isolation,
    )  # fmt: skip
    return _make(_Asked, asked)


def _parse_flexible(view: memoryview, at: int, end: int, version: int) -> _Asked | None:
    """Versions 12 to 18; from 15 on a follower says that it is one in a tag, which is not plain."""
    ask = _ASK_V15 if version >= 15 else _ASK_V12
    topic_at = at + ask.size
    if topic_at >= end:
        return None
    values = list(ask.unpack_from(view, at))
    if version < 15 and values.pop(0) != CONSUMER:
        return None
    wait_ms, min_bytes, max_bytes, isolation, session, epoch, topics = values
    if (session, epoch) != SESSIONLESS or topics != 2:
        return None
    if version >= TOPIC_IDS_SINCE:
        item_at = topic_at + ID_BYTES
    else:
        item_at = topic_at + view[topic_at]  # its own byte, and one less of the name
    item_end = item_at + _ITEM_V12.size
    if item_end + len(_END_FLEXIBLE) != end or view[item_end:end] != _END_FLEXIBLE:
        return None
    partitions, index, leader_epoch, offset, last_epoch, _, most = _ITEM_V12.unpack_from(
        view, item_at
    )
    if partitions != 2 or last_epoch != ANY_EPOCH:
        return None
    field = bytes(view[topic_at:item_at])
    key = field if version >= TOPIC_IDS_SINCE else field[1:].decode()
    asked = (
        field, key, index, leader_epoch, offset, most, wait_ms, min_bytes, max_bytes, isolation
    )  # fmt: skip
    return _make(_Asked, asked)


def _encode(
    partition: Partition, asked: _Asked, version: int, correlation_id: int, size: int
) -> bytes:
    """Versions 4 to 11, up to the records."""
    index, aborted = asked.partition, 0 if asked.isolation else -1
    high, stable = partition.high_watermark, partition.last_stable_offset
    start = partition.log.log_start_offset
    if version >= RACK_SINCE:
        row = _ROW_V11.pack(1, index, 0, high, stable, start, aborted, LEADER, size)
    elif version >= 5:
        row = _ROW_V5.pack(1, index, 0, high, stable, start, aborted, size)
    else:
        row = _ROW_V4.pack(1, index, 0, high, stable, aborted, size)
    rest = len(asked.field) + len(row) + size
    if version >= 7:
        head = _HEAD_V7.pack(rest + _HEAD_V7.size - 4, correlation_id, 0, 0, 0, 1)
    else:
        head = _HEAD_V4.pack(rest + _HEAD_V4.size - 4, correlation_id, 0, 1)
    return head + asked.field + row


def _encode_flexible(
    partition: Partition, asked: _Asked, version: int, correlation_id: int, size: int
) -> bytes:
    """Versions 12 to 18, up to the records."""
    out = bytearray(_HEAD_V12.size)
    out += asked.field
    out += _ROW_V12.pack(
        2, asked.partition, 0, partition.high_watermark, partition.last_stable_offset,
        partition.log.log_start_offset, 1 if asked.isolation else 0, LEADER,
    )  # fmt: skip
    write_uvarint(out, size + 1)
    _HEAD_V12.pack_into(out, 0, len(out) + size + 3 - 4, correlation_id, 0, 0, 0, 0, 2)
    return bytes(out)
