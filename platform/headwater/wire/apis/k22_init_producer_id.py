"""InitProducerId (API key 22), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, wire, wire_schema


@wire_schema
class InitProducerIdRequest(Message):
    """API key 22, versions 0 to 6, flexible from 2."""

    api_key: ClassVar[int] = 22
    versions: ClassVar[tuple[int, int]] = (0, 6)
    flexible: ClassVar[int] = 2

    transactional_id: str | None = wire("string", "0+", nullable="0+")
    transaction_timeout_ms: int = wire("int32", "0+")
    producer_id: int = wire("int64", "3+", default=-1)
    producer_epoch: int = wire("int16", "3+", default=-1)
    enable2_pc: bool = wire("bool", "6+")
    keep_prepared_txn: bool = wire("bool", "6+")


@wire_schema
class InitProducerIdResponse(Message):
    """API key 22, versions 0 to 6, flexible from 2."""

    api_key: ClassVar[int] = 22
    versions: ClassVar[tuple[int, int]] = (0, 6)
    flexible: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32", "0+", ignorable=True)
    error_code: int = wire("int16", "0+")
    producer_id: int = wire("int64", "0+", default=-1)
    producer_epoch: int = wire("int16", "0+")
    ongoing_txn_producer_id: int = wire("int64", "6+", default=-1)
    ongoing_txn_producer_epoch: int = wire("int16", "6+", default=-1)
