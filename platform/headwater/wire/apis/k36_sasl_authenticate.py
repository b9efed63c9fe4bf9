"""SaslAuthenticate (API key 36), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, wire, wire_schema


@wire_schema
class SaslAuthenticateRequest(Message):
    """API key 36, versions 0 to 2, flexible from 2."""

    api_key: ClassVar[int] = 36
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 2

    auth_bytes: bytes = wire("bytes", "0+")


@wire_schema
class SaslAuthenticateResponse(Message):
    """API key 36, versions 0 to 2, flexible from 2."""

    api_key: ClassVar[int] = 36
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 2

    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")
    auth_bytes: bytes = wire("bytes", "0+")
    session_lifetime_ms: int = wire("int64", "1+", ignorable=True)
