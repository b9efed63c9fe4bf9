"""BrokerStatus (API key 10009): Headwater's own, for `headwater status` and managers."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, wire, wire_schema


@wire_schema
class BrokerStatusRequest(Message):
    """API key 10009, version 0, flexible. It needs Describe on the cluster."""

    api_key: ClassVar[int] = 10009
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0


@wire_schema
class BrokerStatusResponse(Message):
    """API key 10009, version 0, flexible."""

    api_key: ClassVar[int] = 10009
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    ready: bool = wire("bool")
    """True once the broker is registered and serves."""
    broker_id: int = wire("int32", default=-1)
    document: str = wire("string")
    """The status page's JSON (format 1)."""
