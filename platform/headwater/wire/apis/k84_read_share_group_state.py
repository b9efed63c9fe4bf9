"""ReadShareGroupState (API key 84), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class PartitionData(Struct):
    """The data for the partitions."""

    partition: int = wire("int32", "0+")
    leader_epoch: int = wire("int32", "0+")


@wire_schema
class ReadStateData(Struct):
    """The data for the topics."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[PartitionData, ...] = wire(PartitionData, "0+", array=True)


@wire_schema
class ReadShareGroupStateRequest(Message):
    """API key 84, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 84
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    group_id: str = wire("string", "0+")
    topics: tuple[ReadStateData, ...] = wire(ReadStateData, "0+", array=True)


@wire_schema
class StateBatch(Struct):
    """The state batches for this share-partition."""

    first_offset: int = wire("int64", "0+")
    last_offset: int = wire("int64", "0+")
    delivery_state: int = wire("int8", "0+")
    delivery_count: int = wire("int16", "0+")


@wire_schema
class PartitionResult(Struct):
    """The results for the partitions."""

    partition: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)
    state_epoch: int = wire("int32", "0+")
    start_offset: int = wire("int64", "0+")
    state_batches: tuple[StateBatch, ...] = wire(StateBatch, "0+", array=True)
    holds: bytes = wire("bytes", "0+", default=b"", tag=10000, tagged="0+", ignorable=True)


@wire_schema
class ReadStateResult(Struct):
    """The read results."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[PartitionResult, ...] = wire(PartitionResult, "0+", array=True)


@wire_schema
class ReadShareGroupStateResponse(Message):
    """API key 84, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 84
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    results: tuple[ReadStateResult, ...] = wire(ReadStateResult, "0+", array=True)
