"""The consumer protocol: subscriptions in JoinGroup, assignments in SyncGroup."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import VERSION_MAX, Message, Struct, wire, wire_schema


@wire_schema
class TopicPartition(Struct):
    """The partitions of a topic that a member owns or is assigned."""

    topic: str = wire("string", "0+")
    partitions: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class ConsumerProtocolSubscription(Message):
    """versions 0 to 3, never flexible."""

    api_key: ClassVar[int] = -1
    versions: ClassVar[tuple[int, int]] = (0, 3)
    flexible: ClassVar[int] = VERSION_MAX

    topics: tuple[str, ...] = wire("string", "0+", array=True)
    user_data: bytes | memoryview | None = wire("bytes", "0+", nullable="0+", default=None)
    owned_partitions: tuple[TopicPartition, ...] = wire(
        TopicPartition, "1+", array=True, ignorable=True
    )
    generation_id: int = wire("int32", "2+", default=-1, ignorable=True)
    rack_id: str | None = wire("string", "3+", nullable="3+", default=None, ignorable=True)


@wire_schema
class ConsumerProtocolAssignment(Message):
    """versions 0 to 3, never flexible."""

    api_key: ClassVar[int] = -1
    versions: ClassVar[tuple[int, int]] = (0, 3)
    flexible: ClassVar[int] = VERSION_MAX

    assigned_partitions: tuple[TopicPartition, ...] = wire(TopicPartition, "0+", array=True)
    user_data: bytes | memoryview | None = wire("bytes", "0+", nullable="0+", default=None)
