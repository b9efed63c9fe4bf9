"""Encodes Produce responses: by struct for one partition without error, else by the codec."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from uuid import UUID

from headwater.errors import ErrorCode
from headwater.wire.apis.k00_produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from headwater.wire.primitives import write_uvarint
from headwater.wire.schema import decode, encoder
from headwater_broker.api.context import Services
from headwater_broker.api.leadership_confirmation import UnconfirmedError
from headwater_broker.api.listener_endpoints import endpoints
from headwater_broker.api.replies import Part
from headwater_broker.api.request_meters import PRODUCE
from headwater_broker.log.results import AppendResult
from headwater_broker.purgatory.purgatory import WatchedOffset
from headwater_broker.replica.partition import Partition

FLEXIBLE = 9
_FRAME = struct.Struct(">ii")
_FRAME_COUNT = struct.Struct(">iii")
_FRAME_FLEXIBLE = struct.Struct(">iiBB")
_PLAIN_V3 = struct.Struct(">iihqqi")
_PLAIN_V5 = struct.Struct(">iihqqqi")
_PLAIN_V8 = struct.Struct(">iihqqqihi")
"""Partitions, one of them, throttle_time_ms."""
_FLEXIBLE_V9 = struct.Struct(">BihqqqBBB")
_pack_flexible_row = struct.Struct(">ihqqqBBB").pack
_NONE = ErrorCode.NONE
_FLEXIBLE_END = b"\0\0\0\0\0\0"
"""Tagged fields of the topic, throttle_time_ms, tagged fields of the reply."""

Appended = tuple[bytes, int, int, int, int]
"""A partition whose batch is appended: its encoded topic and its index; base offset, append time,
log start."""
_topic_of = itemgetter(0)


class Row:
    """One partition of a Produce request and its outcome; `code` is None while it is open."""

    __slots__ = (
        "append_time_ms",
        "base_offset",
        "code",
        "field",
        "index",
        "key",
        "last_offset",
        "leader_epoch",
        "log_start_offset",
        "message",
        "name",
        "partition",
        "record_errors",
        "watched",
    )

    def __init__(self, field: bytes, key: str | bytes, name: str, index: int) -> None:
        self.field = field
        self.key = key
        self.name = name
        self.index = index
        self.code: ErrorCode | None = ErrorCode.NONE
        self.message = ""
        self.record_errors: Sequence[tuple[int, str]] = ()
        """Records that the batch is rejected for: index and message (KIP-467)."""
        self.base_offset = -1
        self.last_offset = -1
        self.append_time_ms = -1
        self.log_start_offset = -1
        self.leader_epoch = -1
        self.partition: Partition | None = None
        self.watched: WatchedOffset | None = None

    def take(self, partition: Partition, result: AppendResult) -> None:
        """Set the result of the append."""
        self.partition = partition
        self.base_offset, self.last_offset, self.append_time_ms, self.log_start_offset, _ = result
        self.leader_epoch = partition.leader_epoch

    @property
    def is_out_of_order(self) -> bool:
        """True when the batch does not follow the producer's last one in this log."""
        return self.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def unconfirmed(self) -> UnconfirmedError:
        """The error of `is_out_of_order`, to be confirmed before it is sent."""
        return UnconfirmedError(
            self, self.name, self.index, self.leader_epoch, "a gap in the producer's sequence",
            self.message,
        )  # fmt: skip

    def fail(self, code: ErrorCode, message: str) -> None:
        """Set the error of this partition."""
        self.code = code
        self.message = message
        self.base_offset = self.append_time_ms = self.log_start_offset = -1


def encode_single(
    version: int,
    correlation_id: int,
    field: bytes,
    index: int,
    base_offset: int,
    append_time_ms: int,
    log_start: int,
) -> bytes:
    """The framed response of a request with one partition and no error."""
    size = len(field)
    if version >= FLEXIBLE:
        return (
            _FRAME_FLEXIBLE.pack(size + 46, correlation_id, 0, 2)
            + field
            + _FLEXIBLE_V9.pack(2, index, 0, base_offset, append_time_ms, log_start, 1, 0, 0)
            + _FLEXIBLE_END
        )
    if version >= 8:
        tail = _PLAIN_V8.pack(1, index, 0, base_offset, append_time_ms, log_start, 0, -1, 0)
    elif version >= 5:
        tail = _PLAIN_V5.pack(1, index, 0, base_offset, append_time_ms, log_start, 0)
    else:
        tail = _PLAIN_V3.pack(1, index, 0, base_offset, append_time_ms, 0)
    return _FRAME_COUNT.pack(size + 8 + len(tail), correlation_id, 1) + field + tail


def encode_rows(
    services: Services, listener: str, version: int, correlation_id: int, rows: Sequence[Row]
) -> bytes:
    """The framed response of any request. Errors carry a message, and the current leader where it
    helps."""
    if version >= FLEXIBLE and not any(row.code is not _NONE for row in rows):
        return encode_appended(
            correlation_id,
            [
                (row.field, row.index, row.base_offset, row.append_time_ms, row.log_start_offset)
                for row in rows
            ],
        )
    topics = []
    leaders: set[int] = set()
    for key, group in groupby(rows, key=lambda row: row.key):
        partitions = tuple(_partition(services, row, version, leaders) for row in group)
        by_id = isinstance(key, bytes)
        topics.append(
            TopicProduceResponse(
                name="" if by_id else str(key),
                topic_id=UUID(bytes=key) if isinstance(key, bytes) else UUID(int=0),
                partition_responses=partitions,
            )
        )
    response = ProduceResponse(
        responses=tuple(topics),
        node_endpoints=tuple(
            NodeEndpoint(node_id=e.node_id, host=e.host, port=e.port, rack=e.rack)
            for e in endpoints(services, listener, leaders)
        ),
    )
    body = encoder(ProduceResponse, version)(response)
    if version < FLEXIBLE:
        return _FRAME.pack(len(body) + 4, correlation_id) + body
    return _FRAME.pack(len(body) + 5, correlation_id) + b"\0" + body


def encode_appended(correlation_id: int, appended: Sequence[Appended]) -> bytes:
    """The framed response of a flexible version without any error."""
    body, topics = bytearray(), 0
    for field, group in groupby(appended, key=_topic_of):
        topics += 1
        of_topic = list(group)
        body += field
        write_uvarint(body, len(of_topic) + 1)
        for _, index, base_offset, append_time_ms, log_start_offset in of_topic:
            body += _pack_flexible_row(
                index, 0, base_offset, append_time_ms, log_start_offset, 1, 0, 0
            )
        body.append(0)
    body += _FLEXIBLE_END[1:]
    head = bytearray()
    write_uvarint(head, topics + 1)
    size = 5 + len(head) + len(body)
    return _FRAME.pack(size, correlation_id) + b"\0" + head + body


def with_throttle_time(parts: Sequence[Part], version: int, delay_ms: int) -> list[Part]:
    """The response with this throttle_time_ms. The field follows rows of variable size, so the
    response is decoded and encoded again."""
    data = b"".join(part for part in parts if isinstance(part, bytes))
    at = 9 if version >= FLEXIBLE else 8  # behind size, correlation id, tagged fields
    response = decode(ProduceResponse, version, data[at:])
    body = encoder(ProduceResponse, version)(replace(response, throttle_time_ms=delay_ms))
    return [data[:at] + body]


def _partition(
    services: Services, row: Row, version: int, leaders: set[int]
) -> PartitionProduceResponse:
    code = row.code if row.code is not None else ErrorCode.REQUEST_TIMED_OUT
    if code:
        services.meters.api(PRODUCE).failed(code)
    current = LeaderIdAndEpoch()
    if code is ErrorCode.NOT_LEADER_OR_FOLLOWER and version >= 10:
        state = services.view.partition(row.name, row.index)
        if state is not None and state.leader_id >= 0:
            current = LeaderIdAndEpoch(leader_id=state.leader_id, leader_epoch=state.leader_epoch)
            leaders.add(state.leader_id)
    return PartitionProduceResponse(
        index=row.index,
        error_code=code,
        base_offset=row.base_offset,
        log_append_time_ms=row.append_time_ms,
        log_start_offset=row.log_start_offset,
        error_message=(row.message or None) if version >= 8 and code else None,
        record_errors=tuple(
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
            for index, text in row.record_errors
        ),
        current_leader=current,
    )
