"""DrainBroker (API key 10012): Headwater's own: a controlled shutdown of this broker."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, wire, wire_schema


@wire_schema
class DrainBrokerRequest(Message):
    """API key 10012, version 0, flexible. It needs ClusterAction on the cluster."""

    api_key: ClassVar[int] = 10012
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0


@wire_schema
class DrainBrokerResponse(Message):
    """API key 10012, version 0, flexible."""

    api_key: ClassVar[int] = 10012
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
