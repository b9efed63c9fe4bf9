"""The records of share groups (KIP-932) in `__consumer_offsets`, from Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import VERSION_MAX, Message, Struct, wire, wire_schema


@wire_schema
class ShareGroupCurrentMemberAssignmentKey(Message):
    """Record type 14."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    group_id: str = wire("string", "0")
    member_id: str = wire("string", "0")


@wire_schema
class TopicPartitions(Struct):
    """TopicPartitions."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class ShareGroupCurrentMemberAssignmentValue(Message):
    """Record type 14."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    member_epoch: int = wire("int32", "0+")
    previous_member_epoch: int = wire("int32", "0+")
    state: int = wire("int8", "0+")
    assigned_partitions: tuple[TopicPartitions, ...] = wire(TopicPartitions, "0+", array=True)


@wire_schema
class ShareGroupMemberMetadataKey(Message):
    """Record type 10."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    group_id: str = wire("string", "0")
    member_id: str = wire("string", "0")


@wire_schema
class ShareGroupMemberMetadataValue(Message):
    """Record type 10."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    rack_id: str | None = wire("string", "0+", nullable="0+")
    client_id: str = wire("string", "0+")
    client_host: str = wire("string", "0+")
    subscribed_topic_names: tuple[str, ...] = wire("string", "0+", array=True)


@wire_schema
class ShareGroupMetadataKey(Message):
    """Record type 11."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    group_id: str = wire("string", "0")


@wire_schema
class ShareGroupMetadataValue(Message):
    """Record type 11."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    epoch: int = wire("int32", "0+")
    metadata_hash: int = wire("int64", "0+")


@wire_schema
class ShareGroupStatePartitionMetadataKey(Message):
    """Record type 15."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    group_id: str = wire("string", "0")


@wire_schema
class TopicPartitionsInfo(Struct):
    """TopicPartitionsInfo."""

    topic_id: UUID = wire("uuid", "0+")
    topic_name: str = wire("string", "0+")
    partitions: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class TopicInfo(Struct):
    """TopicInfo."""

    topic_id: UUID = wire("uuid", "0+")
    topic_name: str = wire("string", "0+")


@wire_schema
class ShareGroupStatePartitionMetadataValue(Message):
    """Record type 15."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    initializing_topics: tuple[TopicPartitionsInfo, ...] = wire(
        TopicPartitionsInfo, "0+", array=True
    )
    initialized_topics: tuple[TopicPartitionsInfo, ...] = wire(
        TopicPartitionsInfo, "0+", array=True
    )
    deleting_topics: tuple[TopicInfo, ...] = wire(TopicInfo, "0+", array=True)


@wire_schema
class ShareGroupTargetAssignmentMemberKey(Message):
    """Record type 13."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    group_id: str = wire("string", "0")
    member_id: str = wire("string", "0")


@wire_schema
class TopicPartition(Struct):
    """The assigned partitions."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class ShareGroupTargetAssignmentMemberValue(Message):
    """Record type 13."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    topic_partitions: tuple[TopicPartition, ...] = wire(TopicPartition, "0+", array=True)


@wire_schema
class ShareGroupTargetAssignmentMetadataKey(Message):
    """Record type 12."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    group_id: str = wire("string", "0")


@wire_schema
class ShareGroupTargetAssignmentMetadataValue(Message):
    """Record type 12."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    assignment_epoch: int = wire("int32", "0+")
    assignment_timestamp: int = wire("int64", "0+", default=0, tag=0, tagged="0+", ignorable=True)
