"""ShareAcknowledge (API key 79), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class AcknowledgementBatch(Struct):
    """Record batches to acknowledge."""

    first_offset: int = wire("int64", "0+")
    last_offset: int = wire("int64", "0+")
    acknowledge_types: tuple[int, ...] = wire("int8", "0+", array=True)


@wire_schema
class AcknowledgePartition(Struct):
    """The partitions containing records to acknowledge."""

    partition_index: int = wire("int32", "0+")
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = wire(
        AcknowledgementBatch, "0+", array=True
    )


@wire_schema
class AcknowledgeTopic(Struct):
    """The topics containing records to acknowledge."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[AcknowledgePartition, ...] = wire(AcknowledgePartition, "0+", array=True)


@wire_schema
class ShareAcknowledgeRequest(Message):
    """API key 79, versions 1 to 2, flexible from 1."""

    api_key: ClassVar[int] = 79
    versions: ClassVar[tuple[int, int]] = (1, 2)
    flexible: ClassVar[int] = 1

    group_id: str | None = wire("string", "0+", nullable="0+", default=None)
    member_id: str | None = wire("string", "0+", nullable="0+")
    share_session_epoch: int = wire("int32", "0+")
    is_renew_ack: bool = wire("bool", "2+", default=False)
    topics: tuple[AcknowledgeTopic, ...] = wire(AcknowledgeTopic, "0+", array=True)


@wire_schema
class LeaderIdAndEpoch(Struct):
    """The current leader of the partition."""

    leader_id: int = wire("int32", "0+")
    leader_epoch: int = wire("int32", "0+")


@wire_schema
class PartitionData(Struct):
    """The topic partitions."""

    partition_index: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "0+")


@wire_schema
class ShareAcknowledgeTopicResponse(Struct):
    """The response topics."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[PartitionData, ...] = wire(PartitionData, "0+", array=True)


@wire_schema
class NodeEndpoint(Struct):
    """Endpoints for all current leaders enumerated in PartitionData with error."""

    node_id: int = wire("int32", "0+")
    host: str = wire("string", "0+")
    port: int = wire("int32", "0+")
    rack: str | None = wire("string", "0+", nullable="0+", default=None)


@wire_schema
class ShareAcknowledgeResponse(Message):
    """API key 79, versions 1 to 2, flexible from 1."""

    api_key: ClassVar[int] = 79
    versions: ClassVar[tuple[int, int]] = (1, 2)
    flexible: ClassVar[int] = 1

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = wire("int32", "2+", ignorable=True)
    responses: tuple[ShareAcknowledgeTopicResponse, ...] = wire(
        ShareAcknowledgeTopicResponse, "0+", array=True
    )
    node_endpoints: tuple[NodeEndpoint, ...] = wire(NodeEndpoint, "0+", array=True)
