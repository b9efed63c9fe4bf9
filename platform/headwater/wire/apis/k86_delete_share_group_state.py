"""DeleteShareGroupState (API key 86), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class PartitionData(Struct):
    """The data for the partitions."""

    partition: int = wire("int32", "0+")


@wire_schema
class DeleteStateData(Struct):
    """The data for the topics."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[PartitionData, ...] = wire(PartitionData, "0+", array=True)


@wire_schema
class DeleteShareGroupStateRequest(Message):
    """API key 86, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 86
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    group_id: str = wire("string", "0+")
    topics: tuple[DeleteStateData, ...] = wire(DeleteStateData, "0+", array=True)


@wire_schema
class PartitionResult(Struct):
    """The results for the partitions."""

    partition: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)


@wire_schema
class DeleteStateResult(Struct):
    """The delete results."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[PartitionResult, ...] = wire(PartitionResult, "0+", array=True)


@wire_schema
class DeleteShareGroupStateResponse(Message):
    """API key 86, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 86
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    results: tuple[DeleteStateResult, ...] = wire(DeleteStateResult, "0+", array=True)
