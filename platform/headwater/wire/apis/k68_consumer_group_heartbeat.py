"""ConsumerGroupHeartbeat (API key 68), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class ConsumerGroupHeartbeatRequest(Message):
    """API key 68, versions 0 to 1, flexible from 0."""

    api_key: ClassVar[int] = 68
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 0

    group_id: str = wire("string", "0+")
    member_id: str = wire("string", "0+")
    member_epoch: int = wire("int32", "0+")
    instance_id: str | None = wire("string", "0+", nullable="0+", default=None)
    rack_id: str | None = wire("string", "0+", nullable="0+", default=None)
    rebalance_timeout_ms: int = wire("int32", "0+", default=-1)
    subscribed_topic_names: tuple[str, ...] | None = wire(
        "string", "0+", nullable="0+", default=None, array=True
    )
    subscribed_topic_regex: str | None = wire("string", "1+", nullable="1+", default=None)
    server_assignor: str | None = wire("string", "0+", nullable="0+", default=None)
    topic_partitions: tuple[TopicPartitions, ...] | None = wire(
        TopicPartitions, "0+", nullable="0+", default=None, array=True
    )


@wire_schema
class Assignment(Struct):
    """The partitions assigned to the member."""

    topic_partitions: tuple[TopicPartitions, ...] = wire(TopicPartitions, "0+", array=True)


@wire_schema
class ConsumerGroupHeartbeatResponse(Message):
    """API key 68, versions 0 to 1, flexible from 0."""

    api_key: ClassVar[int] = 68
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)
    member_id: str | None = wire("string", "0+", nullable="0+", default=None)
    member_epoch: int = wire("int32", "0+")
    heartbeat_interval_ms: int = wire("int32", "0+")
    assignment: Assignment | None = wire(Assignment, "0+", nullable="0+", default=None)
