"""Request and response headers (KIP-482)."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, wire, wire_schema


@wire_schema
class RequestHeader(Message):
    """versions 1 to 2, flexible from 2."""

    api_key: ClassVar[int] = -1
    versions: ClassVar[tuple[int, int]] = (1, 2)
    flexible: ClassVar[int] = 2

    request_api_key: int = wire("int16", "0+")
    request_api_version: int = wire("int16", "0+")
    correlation_id: int = wire("int32", "0+")
    client_id: str | None = wire("string", "1+", nullable="1+", flexible=False)


@wire_schema
class ResponseHeader(Message):
    """versions 0 to 1, flexible from 1."""

    api_key: ClassVar[int] = -1
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 1

    correlation_id: int = wire("int32", "0+")
