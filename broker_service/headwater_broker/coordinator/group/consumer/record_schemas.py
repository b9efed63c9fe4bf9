"""The records of consumer groups (KIP-848) in `__consumer_offsets`, from Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import VERSION_MAX, Message, Struct, wire, wire_schema


@wire_schema
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    """Record type 8."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    group_id: str = wire("string", "0")
    member_id: str = wire("string", "0")


@wire_schema
class TopicPartitions(Struct):
    """TopicPartitions."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[int, ...] = wire("int32", "0+", array=True)
    assignment_epochs: tuple[int, ...] | None = wire(
        "int32", "0+", nullable="0+", default=None, array=True, tag=0, tagged="0+"
    )


@wire_schema
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """Record type 8."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    member_epoch: int = wire("int32", "0+")
    previous_member_epoch: int = wire("int32", "0+")
    state: int = wire("int8", "0+")
    assigned_partitions: tuple[TopicPartitions, ...] = wire(TopicPartitions, "0+", array=True)
    partitions_pending_revocation: tuple[TopicPartitions, ...] = wire(
        TopicPartitions, "0+", array=True
    )


@wire_schema
class ConsumerGroupMemberMetadataKey(Message):
    """Record type 5."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    group_id: str = wire("string", "0")
    member_id: str = wire("string", "0")


@wire_schema
class ClassicProtocol(Struct):
    """The list of protocols that the member supports if the consumer uses the classic."""

    name: str = wire("string", "0+")
    metadata: bytes | memoryview = wire("bytes", "0+")


@wire_schema
class ClassicMemberMetadata(Struct):
    """The classic member metadata which includes the supported protocols of the consumer if."""

    session_timeout_ms: int = wire("int32", "0+")
    supported_protocols: tuple[ClassicProtocol, ...] = wire(ClassicProtocol, "0+", array=True)


@wire_schema
class ConsumerGroupMemberMetadataValue(Message):
    """Record type 5."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    instance_id: str | None = wire("string", "0+", nullable="0+")
    rack_id: str | None = wire("string", "0+", nullable="0+")
    client_id: str = wire("string", "0+")
    client_host: str = wire("string", "0+")
    subscribed_topic_names: tuple[str, ...] = wire("string", "0+", array=True)
    subscribed_topic_regex: str | None = wire("string", "0+", nullable="0+")
    rebalance_timeout_ms: int = wire("int32", "0+", default=-1)
    server_assignor: str | None = wire("string", "0+", nullable="0+")
    classic_member_metadata: ClassicMemberMetadata | None = wire(
        ClassicMemberMetadata, "0+", nullable="0+", default=None, tag=0, tagged="0+"
    )


@wire_schema
class ConsumerGroupMetadataKey(Message):
    """Record type 3."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    group_id: str = wire("string", "0")


@wire_schema
class ConsumerGroupMetadataValue(Message):
    """Record type 3."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    epoch: int = wire("int32", "0+")
    metadata_hash: int = wire("int64", "0+", default=0, tag=0, tagged="0+")


@wire_schema
class ConsumerGroupPartitionMetadataKey(Message):
    """Record type 4."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    group_id: str = wire("string", "0")


@wire_schema
class ConsumerGroupRegularExpressionKey(Message):
    """Record type 16."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    group_id: str = wire("string", "0")
    regular_expression: str = wire("string", "0")


@wire_schema
class ConsumerGroupRegularExpressionValue(Message):
    """Record type 16."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    topics: tuple[str, ...] = wire("string", "0+", array=True)
    version: int = wire("int64", "0+")
    timestamp: int = wire("int64", "0+")


@wire_schema
class ConsumerGroupTargetAssignmentMemberKey(Message):
    """Record type 7."""

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
class ConsumerGroupTargetAssignmentMemberValue(Message):
    """Record type 7."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    topic_partitions: tuple[TopicPartition, ...] = wire(TopicPartition, "0+", array=True)


@wire_schema
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    """Record type 6."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    group_id: str = wire("string", "0")


@wire_schema
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """Record type 6."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    assignment_epoch: int = wire("int32", "0+")
    assignment_timestamp: int = wire("int64", "0+", default=0, tag=0, tagged="0+", ignorable=True)
