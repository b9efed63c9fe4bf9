"""Heartbeat (API key 12), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, wire, wire_schema


@wire_schema
class HeartbeatRequest(Message):
    """API key 12, versions 0 to 4, flexible from 4."""

    api_key: ClassVar[int] = 12
    versions: ClassVar[tuple[int, int]] = (0, 4)
    flexible: ClassVar[int] = 4

    group_id: str = wire("string", "0+")
    generation_id: int = wire("int32", "0+")
    member_id: str = wire("string", "0+")
    group_instance_id: str | None = wire("string", "3+", nullable="3+", default=None)


@wire_schema
class HeartbeatResponse(Message):
    """API key 12, versions 0 to 4, flexible from 4."""

    api_key: ClassVar[int] = 12
    versions: ClassVar[tuple[int, int]] = (0, 4)
    flexible: ClassVar[int] = 4

    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    error_code: int = wire("int16", "0+")
