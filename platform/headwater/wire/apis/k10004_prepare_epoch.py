"""PrepareEpoch (API key 10004): Headwater's own, for epoch transactions (docs/epochs.md)."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.apis.k10002_commit_epoch import EpochParticipant
from headwater.wire.schema import Message, wire, wire_schema


@wire_schema
class PrepareEpochRequest(Message):
    """API key 10004, version 0, flexible."""

    api_key: ClassVar[int] = 10004
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
    participants: tuple[EpochParticipant, ...] = wire(EpochParticipant, array=True)


@wire_schema
class PrepareEpochResponse(Message):
    """API key 10004, version 0, flexible."""

    api_key: ClassVar[int] = 10004
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    status: int = wire("int8")
    """`headwater.wire.epoch_values.EpochStatus`."""
    last_epoch: int = wire("int64", default=-1)
