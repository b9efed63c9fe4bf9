"""Fetch version 17 as followers use it: packed and parsed in place, records are never copied.

The schema `headwater.wire.apis.k01_fetch` describes the same bytes; tests compare the two.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from headwater.wire.primitives import read_uvarint, write_uvarint
from headwater.wire.schema import SchemaError
from headwater_broker.replica.truncation import EpochEnd

FETCH_VERSION = 17
"""With topic ids (13) and broker epochs (15), without KRaft's own fields (18)."""

_HEADER = struct.Struct(">hhih")
_BODY = struct.Struct(">iiibii")
_PARTITION = struct.Struct(">iiqiqi")
_INT32 = struct.Struct(">i")
_REPLICA = struct.Struct(">iq")
_REPLY_HEAD = struct.Struct(">ihi")
_PARTITION_HEAD = struct.Struct(">ihqqq")
_EPOCH_END = struct.Struct(">iq")
_LEADER = struct.Struct(">ii")
_CORRELATION_BYTES = 4
_UUID_BYTES = 16
_ABORTED_BYTES = 17
"""int64, int64 and an empty tag section."""

_EMPTY = memoryview(b"")


class PartitionFetch(NamedTuple):
    """One partition of a follower's fetch."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int


class FetchHead(NamedTuple):
    """The fields of a fetch besides its partitions."""

    correlation_id: int
    client_id: bytes
    cluster_id: str | None
    replica_id: int
    broker_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int


class FetchedPartition(NamedTuple):
    """One partition of the reply; `records` is a slice of the reply itself."""

    topic_id: bytes
    partition: int
    error_code: int
    high_watermark: int
    log_start_offset: int
    diverging: EpochEnd | None
    leader_id: int
    leader_epoch: int
    records: memoryview


class FetchReply(NamedTuple):
    """A parsed reply."""

    error_code: int
    session_id: int
    partitions: list[FetchedPartition]


def pack_fetch(
    head: FetchHead, partitions: Sequence[PartitionFetch], forgotten: Sequence[tuple[bytes, int]]
) -> bytes:
    """A request with header version 2 and body version 17."""
    out = bytearray(_HEADER.pack(1, FETCH_VERSION, head.correlation_id, len(head.client_id)))
    out += head.client_id
    out.append(0)
    out += _BODY.pack(
        head.max_wait_ms, head.min_bytes, head.max_bytes, 0, head.session_id, head.session_epoch
    )
    _pack_partitions(out, partitions)
    _pack_forgotten(out, forgotten)
    out += b"\x01"  # rack id: empty
    _pack_tags(out, head)
    return bytes(out)


def _pack_partitions(out: bytearray, partitions: Sequence[PartitionFetch]) -> None:
    by_topic: dict[bytes, list[PartitionFetch]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic_id, []).append(partition)
    write_uvarint(out, len(by_topic) + 1)
    for topic_id, rows in by_topic.items():
        out += topic_id
        write_uvarint(out, len(rows) + 1)
        for row in rows:
            out += _PARTITION.pack(*row[1:])
            out.append(0)
        out.append(0)


def _pack_forgotten(out: bytearray, forgotten: Sequence[tuple[bytes, int]]) -> None:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in forgotten:
        by_topic.setdefault(topic_id, []).append(partition)
    write_uvarint(out, len(by_topic) + 1)
    for topic_id, partitions in by_topic.items():
        out += topic_id
        write_uvarint(out, len(partitions) + 1)
        for partition in partitions:
            out += _INT32.pack(partition)
        out.append(0)


def _pack_tags(out: bytearray, head: FetchHead) -> None:
    """Tag 0: cluster id; tag 1: replica id and broker epoch (KIP-903)."""
    out.append(1 if head.cluster_id is None else 2)
    if head.cluster_id is not None:
        name = head.cluster_id.encode()
        value = bytearray()
        write_uvarint(value, len(name) + 1)
        value += name
        out.append(0)
        write_uvarint(out, len(value))
        out += value
    out.append(1)
    out.append(_REPLICA.size + 1)
    out += _REPLICA.pack(head.replica_id, head.broker_epoch)
    out.append(0)


def parse_fetch(view: memoryview) -> tuple[int, FetchReply]:
    """(correlation id, reply) of header version 1 and body version 17. Raises SchemaError."""
    try:
        correlation_id = _INT32.unpack_from(view, 0)[0]
        at = _skip_tags(view, _CORRELATION_BYTES)
        _, error_code, session_id = _REPLY_HEAD.unpack_from(view, at)
        at += _REPLY_HEAD.size
        partitions: list[FetchedPartition] = []
        topics, at = read_uvarint(view, at)
        for _ in range(topics - 1):
            topic_id = bytes(view[at : at + _UUID_BYTES])
            count, at = read_uvarint(view, at + _UUID_BYTES)
            for _ in range(count - 1):
                row, at = _parse_partition(topic_id, view, at)
                partitions.append(row)
            at = _skip_tags(view, at)
        if _skip_tags(view, at) > len(view):
            raise SchemaError("fetch reply: tags run past the end")
    except (struct.error, IndexError, ValueError) as e:
        raise SchemaError(f"malformed fetch reply of {len(view)} bytes: {e}") from e
    return correlation_id, FetchReply(error_code, session_id, partitions)


def _parse_partition(topic_id: bytes, view: memoryview, at: int) -> tuple[FetchedPartition, int]:
    index, error, mark, _, log_start = _PARTITION_HEAD.unpack_from(view, at)
    aborted, at = read_uvarint(view, at + _PARTITION_HEAD.size)
    for _ in range(aborted - 1):
        at = _skip_tags(view, at + _ABORTED_BYTES - 1)
    at += 4  # preferred read replica: for consumers only
    size, at = read_uvarint(view, at)
    records = _EMPTY
    if size > 1:
        end = at + size - 1
        if end > len(view):
            raise ValueError(f"records of {size - 1} bytes run past the end")
        records = view[at:end]
        at = end
    diverging, leader, at = _parse_partition_tags(view, at)
    return (
        FetchedPartition(
            topic_id, index, error, mark, log_start, diverging, leader[0], leader[1], records
        ),
        at,
    )


def _parse_partition_tags(
    view: memoryview, at: int
) -> tuple[EpochEnd | None, tuple[int, int], int]:
    diverging: EpochEnd | None = None
    leader = (-1, -1)
    count, at = read_uvarint(view, at)
    for _ in range(count):
        tag, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        if tag == 0:
            diverging = EpochEnd(*_EPOCH_END.unpack_from(view, at))
        elif tag == 1:
            leader = _LEADER.unpack_from(view, at)
        at += size
    return diverging, leader, at


def _skip_tags(view: memoryview, at: int) -> int:
    count, at = read_uvarint(view, at)
    for _ in range(count):
        _, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        at += size
    return at
