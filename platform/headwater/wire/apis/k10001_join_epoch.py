"""JoinEpoch (API key 10001): Headwater's own, for epoch transactions (docs/epochs.md)."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class JoinEpochTopic(Struct):
    """Partitions to enlist with the join."""

    name: str = wire("string")
    partitions: tuple[int, ...] = wire("int32", array=True)


@wire_schema
class JoinEpochRequest(Message):
    """API key 10001, version 0, flexible."""

    api_key: ClassVar[int] = 10001
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    sink: str = wire("string")
    owner: str = wire("string")
    """The id of the streaming query, or of the batch write."""
    run: UUID = wire("uuid")
    ticket: int = wire("int64")
    epoch: int = wire("int64")
    task: int = wire("int32")
    """Spark's partition id of the task."""
    attempt: int = wire("int64")
    """Spark's task attempt id: a repeated request of one attempt gets the same participant."""
    kind: int = wire("int8")
    """`headwater.wire.epoch_values.SinkKind`."""
    topics: tuple[JoinEpochTopic, ...] = wire(JoinEpochTopic, array=True)


@wire_schema
class JoinEpochResponse(Message):
    """API key 10001, version 0, flexible."""

    api_key: ClassVar[int] = 10001
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    status: int = wire("int8")
    """`headwater.wire.epoch_values.EpochStatus`."""
    last_epoch: int = wire("int64", default=-1)
    """The last committed epoch of the sink; -1: none."""
    transactional_id: str = wire("string")
    slot: int = wire("int32", default=-1)
    producer_id: int = wire("int64", default=-1)
    producer_epoch: int = wire("int16", default=-1)
    heartbeat_interval_ms: int = wire("int32", default=-1)
