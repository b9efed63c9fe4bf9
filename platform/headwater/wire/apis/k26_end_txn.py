"""EndTxn (API key 26), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, wire, wire_schema


@wire_schema
class EndTxnRequest(Message):
    """API key 26, versions 0 to 5, flexible from 3."""

    api_key: ClassVar[int] = 26
    versions: ClassVar[tuple[int, int]] = (0, 5)
    flexible: ClassVar[int] = 3

    transactional_id: str = wire("string", "0+")
    producer_id: int = wire("int64", "0+")
    producer_epoch: int = wire("int16", "0+")
    committed: bool = wire("bool", "0+")


@wire_schema
class EndTxnResponse(Message):
    """API key 26, versions 0 to 5, flexible from 3."""

    api_key: ClassVar[int] = 26
    versions: ClassVar[tuple[int, int]] = (0, 5)
    flexible: ClassVar[int] = 3

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    producer_id: int = wire("int64", "5+", default=-1, ignorable=True)
    producer_epoch: int = wire("int16", "5+", default=-1, ignorable=True)
