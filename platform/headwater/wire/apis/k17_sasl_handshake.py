"""SaslHandshake (API key 17), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import VERSION_MAX, Message, wire, wire_schema


@wire_schema
class SaslHandshakeRequest(Message):
    """API key 17, versions 0 to 1, never flexible."""

    api_key: ClassVar[int] = 17
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = VERSION_MAX

    mechanism: str = wire("string", "0+")


@wire_schema
class SaslHandshakeResponse(Message):
    """API key 17, versions 0 to 1, never flexible."""

    api_key: ClassVar[int] = 17
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = VERSION_MAX

    error_code: int = wire("int16", "0+")
    mechanisms: tuple[str, ...] = wire("string", "0+", array=True)
