"""AddOffsetsToTxn (API key 25), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, wire, wire_schema


@wire_schema
class AddOffsetsToTxnRequest(Message):
    """API key 25, versions 0 to 4, flexible from 3."""

    api_key: ClassVar[int] = 25
    versions: ClassVar[tuple[int, int]] = (0, 4)
    flexible: ClassVar[int] = 3

    transactional_id: str = wire("string", "0+")
    producer_id: int = wire("int64", "0+")
    producer_epoch: int = wire("int16", "0+")
    group_id: str = wire("string", "0+")


@wire_schema
class AddOffsetsToTxnResponse(Message):
    """API key 25, versions 0 to 4, flexible from 3."""

    api_key: ClassVar[int] = 25
    versions: ClassVar[tuple[int, int]] = (0, 4)
    flexible: ClassVar[int] = 3

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
