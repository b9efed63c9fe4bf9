"""WriteShareGroupState (API key 85), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class StateBatch(Struct):
    """The state batches for the share-partition."""

    first_offset: int = wire("int64", "0+")
    last_offset: int = wire("int64", "0+")
    delivery_state: int = wire("int8", "0+")
    delivery_count: int = wire("int16", "0+")


@wire_schema
class PartitionData(Struct):
    """The data for the partitions."""

    partition: int = wire("int32", "0+")
    state_epoch: int = wire("int32", "0+")
    leader_epoch: int = wire("int32", "0+")
    start_offset: int = wire("int64", "0+")
    delivery_complete_count: int = wire("int32", "1+", default=-1, ignorable=True)
    state_batches: tuple[StateBatch, ...] = wire(StateBatch, "0+", array=True)
    holds: bytes = wire("bytes", "0+", default=b"", tag=10000, tagged="0+", ignorable=True)


@wire_schema
class WriteStateData(Struct):
    """The data for the topics."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[PartitionData, ...] = wire(PartitionData, "0+", array=True)


@wire_schema
class WriteShareGroupStateRequest(Message):
    """API key 85, versions 0 to 1, flexible from 0."""

    api_key: ClassVar[int] = 85
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 0

    group_id: str = wire("string", "0+")
    topics: tuple[WriteStateData, ...] = wire(WriteStateData, "0+", array=True)


@wire_schema
class PartitionResult(Struct):
    """The results for the partitions."""

    partition: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)


@wire_schema
class WriteStateResult(Struct):
    """The write results."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[PartitionResult, ...] = wire(PartitionResult, "0+", array=True)


@wire_schema
class WriteShareGroupStateResponse(Message):
    """API key 85, versions 0 to 1, flexible from 0."""

    api_key: ClassVar[int] = 85
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 0

    results: tuple[WriteStateResult, ...] = wire(WriteStateResult, "0+", array=True)
