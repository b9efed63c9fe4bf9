"""AbortEpoch (API key 10003): Headwater's own, for epoch transactions (docs/epochs.md)."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, wire, wire_schema


@wire_schema
class AbortEpochRequest(Message):
    """API key 10003, version 0, flexible."""

    api_key: ClassVar[int] = 10003
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    sink: str = wire("string")
    owner: str = wire("string")
    """The id of the streaming query, or of the batch write."""
    run: UUID = wire("uuid")
    ticket: int = wire("int64")
    epoch: int = wire("int64")
    kind: int = wire("int8")
    """`headwater.wire.epoch_values.SinkKind`."""
    is_prepared: bool = wire("bool")
    """True: abort also what PrepareEpoch made durable."""


@wire_schema
class AbortEpochResponse(Message):
    """API key 10003, version 0, flexible."""

    api_key: ClassVar[int] = 10003
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    status: int = wire("int8")
    """`headwater.wire.epoch_values.EpochStatus`."""
    last_epoch: int = wire("int64", default=-1)
