"""DescribeTopicPartitions (API key 75), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class TopicRequest(Struct):
    """The topics to fetch details for."""

    name: str = wire("string", "0+")


@wire_schema
class Cursor(Struct):
    """The first topic and partition index to fetch details for."""

    topic_name: str = wire("string", "0+")
    partition_index: int = wire("int32", "0+")


@wire_schema
class DescribeTopicPartitionsRequest(Message):
    """API key 75, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 75
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    topics: tuple[TopicRequest, ...] = wire(TopicRequest, "0+", array=True)
    response_partition_limit: int = wire("int32", "0+", default=2000)
    cursor: Cursor | None = wire(Cursor, "0+", nullable="0+", default=None)


@wire_schema
class DescribeTopicPartitionsResponsePartition(Struct):
    """Each partition in the topic."""

    error_code: int = wire("int16", "0+")
    partition_index: int = wire("int32", "0+")
    leader_id: int = wire("int32", "0+")
    leader_epoch: int = wire("int32", "0+", default=-1, ignorable=True)
    replica_nodes: tuple[int, ...] = wire("int32", "0+", array=True)
    isr_nodes: tuple[int, ...] = wire("int32", "0+", array=True)
    eligible_leader_replicas: tuple[int, ...] | None = wire(
        "int32", "0+", array=True, nullable="0+", default=None
    )
    last_known_elr: tuple[int, ...] | None = wire(
        "int32", "0+", array=True, nullable="0+", default=None
    )
    offline_replicas: tuple[int, ...] = wire("int32", "0+", array=True, ignorable=True)


@wire_schema
class DescribeTopicPartitionsResponseTopic(Struct):
    """Each topic in the response."""

    error_code: int = wire("int16", "0+")
    name: str | None = wire("string", "0+", nullable="0+")
    topic_id: UUID = wire("uuid", "0+", ignorable=True)
    is_internal: bool = wire("bool", "0+", ignorable=True)
    partitions: tuple[DescribeTopicPartitionsResponsePartition, ...] = wire(
        DescribeTopicPartitionsResponsePartition, "0+", array=True
    )
    topic_authorized_operations: int = wire("int32", "0+", default=-2147483648)


@wire_schema
class DescribeTopicPartitionsResponse(Message):
    """API key 75, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 75
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32", "0+", ignorable=True)
    topics: tuple[DescribeTopicPartitionsResponseTopic, ...] = wire(
        DescribeTopicPartitionsResponseTopic, "0+", array=True
    )
    next_cursor: Cursor | None = wire(Cursor, "0+", nullable="0+", default=None)
