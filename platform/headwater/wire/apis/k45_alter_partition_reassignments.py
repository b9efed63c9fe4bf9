"""AlterPartitionReassignments (API key 45), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class ReassignablePartition(Struct):
    """The partitions to reassign."""

    partition_index: int = wire("int32", "0+")
    replicas: tuple[int, ...] | None = wire("int32", "0+", array=True, nullable="0+", default=None)


@wire_schema
class ReassignableTopic(Struct):
    """The topics to reassign."""

    name: str = wire("string", "0+")
    partitions: tuple[ReassignablePartition, ...] = wire(ReassignablePartition, "0+", array=True)


@wire_schema
class AlterPartitionReassignmentsRequest(Message):
    """API key 45, versions 0 to 1, flexible from 0."""

    api_key: ClassVar[int] = 45
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 0

    timeout_ms: int = wire("int32", "0+", default=60000)
    allow_replication_factor_change: bool = wire("bool", "1+", default=True)
    topics: tuple[ReassignableTopic, ...] = wire(ReassignableTopic, "0+", array=True)


@wire_schema
class ReassignablePartitionResponse(Struct):
    """The responses to partitions to reassign."""

    partition_index: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")


@wire_schema
class ReassignableTopicResponse(Struct):
    """The responses to topics to reassign."""

    name: str = wire("string", "0+")
    partitions: tuple[ReassignablePartitionResponse, ...] = wire(
        ReassignablePartitionResponse, "0+", array=True
    )


@wire_schema
class AlterPartitionReassignmentsResponse(Message):
    """API key 45, versions 0 to 1, flexible from 0."""

    api_key: ClassVar[int] = 45
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32", "0+")
    allow_replication_factor_change: bool = wire("bool", "1+", default=True, ignorable=True)
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")
    responses: tuple[ReassignableTopicResponse, ...] = wire(
        ReassignableTopicResponse, "0+", array=True
    )
