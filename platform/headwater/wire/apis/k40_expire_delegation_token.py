"""ExpireDelegationToken (API key 40), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, wire, wire_schema


@wire_schema
class ExpireDelegationTokenRequest(Message):
    """API key 40, versions 1 to 2, flexible from 2."""

    api_key: ClassVar[int] = 40
    versions: ClassVar[tuple[int, int]] = (1, 2)
    flexible: ClassVar[int] = 2

    hmac: bytes = wire("bytes", "0+")
    expiry_time_period_ms: int = wire("int64", "0+")


@wire_schema
class ExpireDelegationTokenResponse(Message):
    """API key 40, versions 1 to 2, flexible from 2."""

    api_key: ClassVar[int] = 40
    versions: ClassVar[tuple[int, int]] = (1, 2)
    flexible: ClassVar[int] = 2

    error_code: int = wire("int16", "0+")
    expiry_timestamp_ms: int = wire("int64", "0+")
    throttle_time_ms: int = wire("int32", "0+")
