"""ShareGroupDescribe (API key 77), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class ShareGroupDescribeRequest(Message):
    """API key 77, versions 1 to 1, flexible from 1."""

    api_key: ClassVar[int] = 77
    versions: ClassVar[tuple[int, int]] = (1, 1)
    flexible: ClassVar[int] = 1

    group_ids: tuple[str, ...] = wire("string", "0+", array=True)
    include_authorized_operations: bool = wire("bool", "0+")


@wire_schema
class TopicPartitions(Struct):
    """TopicPartitions."""

    topic_id: UUID = wire("uuid", "0+")
    topic_name: str = wire("string", "0+")
    partitions: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class Assignment(Struct):
    """Assignment."""

    topic_partitions: tuple[TopicPartitions, ...] = wire(TopicPartitions, "0+", array=True)


@wire_schema
class Member(Struct):
    """The members."""

    member_id: str = wire("string", "0+")
    rack_id: str | None = wire("string", "0+", nullable="0+", default=None)
    member_epoch: int = wire("int32", "0+")
    client_id: str = wire("string", "0+")
    client_host: str = wire("string", "0+")
    subscribed_topic_names: tuple[str, ...] = wire("string", "0+", array=True)
    assignment: Assignment = wire(Assignment, "0+")


@wire_schema
class DescribedGroup(Struct):
    """Each described group."""

    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)
    group_id: str = wire("string", "0+")
    group_state: str = wire("string", "0+")
    group_epoch: int = wire("int32", "0+")
    assignment_epoch: int = wire("int32", "0+")
    assignor_name: str = wire("string", "0+")
    members: tuple[Member, ...] = wire(Member, "0+", array=True)
    authorized_operations: int = wire("int32", "0+", default=-2147483648)


@wire_schema
class ShareGroupDescribeResponse(Message):
    """API key 77, versions 1 to 1, flexible from 1."""

    api_key: ClassVar[int] = 77
    versions: ClassVar[tuple[int, int]] = (1, 1)
    flexible: ClassVar[int] = 1

    throttle_time_ms: int = wire("int32", "0+")
    groups: tuple[DescribedGroup, ...] = wire(DescribedGroup, "0+", array=True)
