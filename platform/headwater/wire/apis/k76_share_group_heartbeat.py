"""ShareGroupHeartbeat (API key 76), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class ShareGroupHeartbeatRequest(Message):
    """API key 76, versions 1 to 1, flexible from 1."""

    api_key: ClassVar[int] = 76
    versions: ClassVar[tuple[int, int]] = (1, 1)
    flexible: ClassVar[int] = 1

    group_id: str = wire("string", "0+")
    member_id: str = wire("string", "0+")
    member_epoch: int = wire("int32", "0+")
    rack_id: str | None = wire("string", "0+", nullable="0+", default=None)
    subscribed_topic_names: tuple[str, ...] | None = wire(
        "string", "0+", nullable="0+", default=None, array=True
    )


@wire_schema
class TopicPartitions(Struct):
    """Partitions of one topic."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class Assignment(Struct):
    """The partitions assigned to the member."""

    topic_partitions: tuple[TopicPartitions, ...] = wire(TopicPartitions, "0+", array=True)


@wire_schema
class ShareGroupHeartbeatResponse(Message):
    """API key 76, versions 1 to 1, flexible from 1."""

    api_key: ClassVar[int] = 76
    versions: ClassVar[tuple[int, int]] = (1, 1)
    flexible: ClassVar[int] = 1

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)
    member_id: str | None = wire("string", "0+", nullable="0+", default=None)
    member_epoch: int = wire("int32", "0+")
    heartbeat_interval_ms: int = wire("int32", "0+")
    assignment: Assignment | None = wire(Assignment, "0+", nullable="0+", default=None)
