"""CommitEpoch (API key 10002): Headwater's own, for epoch transactions (docs/epochs.md)."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class EpochParticipant(Struct):
    """A participant whose rows are written and acknowledged."""

    task: int = wire("int32")
    slot: int = wire("int32")
    producer_id: int = wire("int64")
    producer_epoch: int = wire("int16")


@wire_schema
class CommitEpochRequest(Message):
    """API key 10002, version 0, flexible."""

    api_key: ClassVar[int] = 10002
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
    """True: commit what PrepareEpoch made durable, also of an earlier run; no participants."""
    participants: tuple[EpochParticipant, ...] = wire(EpochParticipant, array=True)


@wire_schema
class CommitEpochResponse(Message):
    """API key 10002, version 0, flexible."""

    api_key: ClassVar[int] = 10002
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    status: int = wire("int8")
    """`headwater.wire.epoch_values.EpochStatus`."""
    last_epoch: int = wire("int64", default=-1)
    is_complete: bool = wire("bool")
    """False: committed, but some partitions do not hold their markers yet."""
