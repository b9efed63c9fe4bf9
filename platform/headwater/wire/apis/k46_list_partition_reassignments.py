"""ListPartitionReassignments (API key 46), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class ListPartitionReassignmentsTopics(Struct):
    """The topics to list partition reassignments for, or null to list everything."""

    name: str = wire("string", "0+")
    partition_indexes: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class ListPartitionReassignmentsRequest(Message):
    """API key 46, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 46
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    timeout_ms: int = wire("int32", "0+", default=60000)
    topics: tuple[ListPartitionReassignmentsTopics, ...] | None = wire(
        ListPartitionReassignmentsTopics, "0+", array=True, nullable="0+", default=None
    )


@wire_schema
class OngoingPartitionReassignment(Struct):
    """The ongoing reassignments for each partition."""

    partition_index: int = wire("int32", "0+")
    replicas: tuple[int, ...] = wire("int32", "0+", array=True)
    adding_replicas: tuple[int, ...] = wire("int32", "0+", array=True)
    removing_replicas: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class OngoingTopicReassignment(Struct):
    """The ongoing reassignments for each topic."""

    name: str = wire("string", "0+")
    partitions: tuple[OngoingPartitionReassignment, ...] = wire(
        OngoingPartitionReassignment, "0+", array=True
    )


@wire_schema
class ListPartitionReassignmentsResponse(Message):
    """API key 46, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 46
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")
    topics: tuple[OngoingTopicReassignment, ...] = wire(OngoingTopicReassignment, "0+", array=True)
