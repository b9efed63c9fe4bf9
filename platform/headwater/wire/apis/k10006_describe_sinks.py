"""DescribeSinks (API key 10006): Headwater's own, for epoch transactions (docs/epochs.md)."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class DescribeSinksRequest(Message):
    """API key 10006, version 0, flexible."""

    api_key: ClassVar[int] = 10006
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    sinks: tuple[str, ...] | None = wire("string", array=True, nullable="0+", default=None)
    """None: every sink whose coordinator is this broker."""


@wire_schema
class DescribedParticipant(Struct):
    """A slot of an epoch."""

    slot: int = wire("int32")
    task: int = wire("int32")
    attempt: int = wire("int64")
    producer_id: int = wire("int64")
    producer_epoch: int = wire("int16")
    state: str = wire("string")
    """Kafka's name of the transaction's state."""
    partitions: tuple[str, ...] = wire("string", array=True)
    """topic-partition, without a marker yet."""


@wire_schema
class DescribedEpoch(Struct):
    """An epoch that is not complete."""

    epoch: int = wire("int64")
    run: UUID = wire("uuid")
    ticket: int = wire("int64")
    state: str = wire("string")
    """`headwater.wire.epoch_values.EpochState`'s label."""
    start_ms: int = wire("int64")
    """Of the first join, since 1970."""
    deadline_ms: int = wire("int64", default=-1)
    """When it is aborted, since 1970; -1: never (prepared, or decided)."""
    participants: tuple[DescribedParticipant, ...] = wire(DescribedParticipant, array=True)


@wire_schema
class DescribedSink(Struct):
    """A sink, or the error about its name."""

    error_code: int = wire("int16")
    sink: str = wire("string")
    owner: str = wire("string")
    kind: int = wire("int8")
    run: UUID = wire("uuid")
    ticket: int = wire("int64", default=-1)
    last_epoch: int = wire("int64", default=-1)
    last_update_ms: int = wire("int64", default=-1)
    retired_runs: int = wire("int32")
    slots: int = wire("int32")
    epochs: tuple[DescribedEpoch, ...] = wire(DescribedEpoch, array=True)


@wire_schema
class DescribeSinksResponse(Message):
    """API key 10006, version 0, flexible."""

    api_key: ClassVar[int] = 10006
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    sinks: tuple[DescribedSink, ...] = wire(DescribedSink, array=True)
