"""AlterShareGroupOffsets (API key 91), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class AlterShareGroupOffsetsRequestPartition(Struct):
    """Each partition to alter offsets for."""

    partition_index: int = wire("int32", "0+")
    start_offset: int = wire("int64", "0+")


@wire_schema
class AlterShareGroupOffsetsRequestTopic(Struct):
    """The topics to alter offsets for."""

    topic_name: str = wire("string", "0+")
    partitions: tuple[AlterShareGroupOffsetsRequestPartition, ...] = wire(
        AlterShareGroupOffsetsRequestPartition, "0+", array=True
    )


@wire_schema
class AlterShareGroupOffsetsRequest(Message):
    """API key 91, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 91
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    group_id: str = wire("string", "0+")
    topics: tuple[AlterShareGroupOffsetsRequestTopic, ...] = wire(
        AlterShareGroupOffsetsRequestTopic, "0+", array=True
    )


@wire_schema
class AlterShareGroupOffsetsResponsePartition(Struct):
    """AlterShareGroupOffsetsResponsePartition."""

    partition_index: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)


@wire_schema
class AlterShareGroupOffsetsResponseTopic(Struct):
    """The results for each topic."""

    topic_name: str = wire("string", "0+")
    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[AlterShareGroupOffsetsResponsePartition, ...] = wire(
        AlterShareGroupOffsetsResponsePartition, "0+", array=True
    )


@wire_schema
class AlterShareGroupOffsetsResponse(Message):
    """API key 91, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 91
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)
    responses: tuple[AlterShareGroupOffsetsResponseTopic, ...] = wire(
        AlterShareGroupOffsetsResponseTopic, "0+", array=True
    )
