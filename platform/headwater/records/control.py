"""Control records: the markers that end a transaction (KIP-98, KIP-890).

Key: version h, type h. Value of COMMIT and ABORT: version h, coordinator epoch i. A control batch
holds one record, is transactional, and never reaches applications.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from headwater.errors import ErrorCode, KafkaError
from headwater.records.builder import BatchBuilder
from headwater.records.record import Record

_KEY = struct.Struct(">hh")
_END_VALUE = struct.Struct(">hi")
CURRENT_VERSION = 0


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
    builder = BatchBuilder()
    builder.append(
        timestamp,
        _KEY.pack(CURRENT_VERSION, kind),
        _END_VALUE.pack(CURRENT_VERSION, coordinator_epoch),
    )
    return builder.build(
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )
