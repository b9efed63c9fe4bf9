"""Control records: the markers that end a transaction (KIP-98, KIP-890).

Key: version h, type h. Value of COMMIT and ABORT: version h, coordinator epoch i. A control batch
holds one record, is transactional, and never reaches applications.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import (
    CONTROL_MASK,
    HEADER,
    LOG_OVERHEAD_BYTES,
    MAGIC_V2,
    TRANSACTIONAL_MASK,
    BatchHeader,
)
from headwater.records.builder import seal
from headwater.records.record import Record, decode_batch

_KEY = struct.Struct(">hh")
_END_VALUE = struct.Struct(">hi")
CURRENT_VERSION = 0
_MARKER_RECORD = struct.Struct(">5shhBhiB")
"""The only record of a marker: up to its key's length; key; length of the value; value; headers."""
_RECORD_HEAD = b"\x20\x00\x00\x00\x08"
"""Length 16, attributes, timestamp delta, offset delta, a key of 4 bytes."""
_VALUE_6 = 12
"""The varint of 6, the length of the value."""
MARKER_BYTES = HEADER.size + _MARKER_RECORD.size
"""Size of a batch of `build_marker`."""
_unpack_built = struct.Struct(">35xqqh15xh3xi").unpack_from
_MARKER_FLAGS = CONTROL_MASK | TRANSACTIONAL_MASK


class ControlType(IntEnum):
    """Types of control records. KRaft has others, which count as UNKNOWN."""

    ABORT = 0
    COMMIT = 1
    UNKNOWN = -1


class EndTxnMarker(NamedTuple):
    """The marker that ends a transaction."""

    type: ControlType
    coordinator_epoch: int


def control_type(key: bytes | memoryview | None) -> ControlType:
    """The type in a control record's key. Raises KafkaError(CORRUPT_MESSAGE)."""
    if key is None or len(key) < _KEY.size:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "control record without a key of 4 bytes")
    value = _KEY.unpack_from(key)[1]
    return ControlType(value) if value in (0, 1) else ControlType.UNKNOWN


def parse_marker(record: Record) -> EndTxnMarker:
    """The marker in a control record. Raises KafkaError(CORRUPT_MESSAGE)."""
    kind = control_type(record.key)
    if record.value is None or len(record.value) < _END_VALUE.size:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, "end-of-transaction marker without a value")
    return EndTxnMarker(kind, _END_VALUE.unpack_from(record.value)[1])


def build_marker(
    kind: ControlType,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    timestamp: int,
    leader_epoch: int = -1,
) -> bytearray:
    """The control batch that ends a producer's transaction in a partition."""
    batch = bytearray(
        HEADER.pack(
            0, MARKER_BYTES - LOG_OVERHEAD_BYTES, leader_epoch, MAGIC_V2, 0, _MARKER_FLAGS,
            0, timestamp, timestamp, producer_id, producer_epoch, -1, 1,
        )
        + _MARKER_RECORD.pack(
            _RECORD_HEAD, CURRENT_VERSION, kind, _VALUE_6, CURRENT_VERSION, coordinator_epoch, 0
        )
    )  # fmt: skip
    seal(batch)
    return batch


def read_built_marker(view: memoryview, at: int) -> tuple[int, int, int, bool, int]:
    """What `build_marker` has put into the batch at byte `at`: timestamp, producer id, producer
    epoch, whether it commits, coordinator epoch."""
    timestamp, producer_id, producer_epoch, kind, coordinator_epoch = _unpack_built(view, at)
    return timestamp, producer_id, producer_epoch, kind == 1, coordinator_epoch


def read_end_marker(view: memoryview, header: BatchHeader) -> EndTxnMarker | None:
    """The marker in the control batch at the start of `view`; None when it has no record, as after
    compaction. Raises KafkaError(CORRUPT_MESSAGE).

    A marker in the form of `build_marker`, which is Kafka's, is read in place.
    """
    if header.size_bytes == MARKER_BYTES and header.attributes == _MARKER_FLAGS:
        head, _, kind, value_size, _, coordinator_epoch, headers = _MARKER_RECORD.unpack_from(
            view, HEADER.size
        )
        if head == _RECORD_HEAD and value_size == _VALUE_6 and not headers and kind in (0, 1):
            return EndTxnMarker(ControlType(kind), coordinator_epoch)
    if header.record_count == 0:
        return None
    records = decode_batch(view, 0, header)
    if not records:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"control batch at {header.base_offset} without a record"
        )
    return parse_marker(records[0])
