"""AllocateEpochTicket (API key 10000): Headwater's own, for epoch transactions (docs/epochs.md)."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, wire, wire_schema


@wire_schema
class AllocateEpochTicketRequest(Message):
    """API key 10000, version 0, flexible."""

    api_key: ClassVar[int] = 10000
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0


@wire_schema
class AllocateEpochTicketResponse(Message):
    """API key 10000, version 0, flexible."""

    api_key: ClassVar[int] = 10000
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    ticket: int = wire("int64", default=-1)
    """Higher than every ticket allocated before, in the whole cluster."""
