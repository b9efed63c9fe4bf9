"""Produce (API key 0), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class PartitionProduceData(Struct):
    """Each partition to produce to."""

    index: int = wire("int32", "0+")
    records: bytes | memoryview | None = wire("records", "0+", nullable="0+")


@wire_schema
class TopicProduceData(Struct):
    """Each topic to produce to."""

    name: str = wire("string", "0-12", ignorable=True)
    topic_id: UUID = wire("uuid", "13+", ignorable=True)
    partition_data: tuple[PartitionProduceData, ...] = wire(PartitionProduceData, "0+", array=True)


@wire_schema
class ProduceRequest(Message):
    """API key 0, versions 3 to 13, flexible from 9."""

    api_key: ClassVar[int] = 0
    versions: ClassVar[tuple[int, int]] = (3, 13)
    flexible: ClassVar[int] = 9

    transactional_id: str | None = wire("string", "3+", nullable="3+", default=None)
    acks: int = wire("int16", "0+")
    timeout_ms: int = wire("int32", "0+")
    topic_data: tuple[TopicProduceData, ...] = wire(TopicProduceData, "0+", array=True)


@wire_schema
class BatchIndexAndErrorMessage(Struct):
    """The batch indices of records that caused the batch to be dropped."""

    batch_index: int = wire("int32", "8+")
    batch_index_error_message: str | None = wire("string", "8+", nullable="8+", default=None)


@wire_schema
class LeaderIdAndEpoch(Struct):
    """The leader broker that the producer should use for future requests."""

    leader_id: int = wire("int32", "10+", default=-1)
    leader_epoch: int = wire("int32", "10+", default=-1)


@wire_schema
class PartitionProduceResponse(Struct):
    """Each partition that we produced to within the topic."""

    index: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    base_offset: int = wire("int64", "0+")
    log_append_time_ms: int = wire("int64", "2+", default=-1, ignorable=True)
    log_start_offset: int = wire("int64", "5+", default=-1, ignorable=True)
    record_errors: tuple[BatchIndexAndErrorMessage, ...] = wire(
        BatchIndexAndErrorMessage, "8+", array=True, ignorable=True
    )
    error_message: str | None = wire("string", "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "10+", tag=0, tagged="10+")


@wire_schema
class TopicProduceResponse(Struct):
    """Each produce response."""

    name: str = wire("string", "0-12", ignorable=True)
    topic_id: UUID = wire("uuid", "13+", ignorable=True)
    partition_responses: tuple[PartitionProduceResponse, ...] = wire(
        PartitionProduceResponse, "0+", array=True
    )


@wire_schema
class NodeEndpoint(Struct):
    """Endpoints for all current-leaders enumerated in PartitionProduceResponses, with errors
    NOT_LEADER_OR_FOLLOWER.
    """

    node_id: int = wire("int32", "10+")
    host: str = wire("string", "10+")
    port: int = wire("int32", "10+")
    rack: str | None = wire("string", "10+", nullable="10+", default=None)


@wire_schema
class ProduceResponse(Message):
    """API key 0, versions 3 to 13, flexible from 9."""

    api_key: ClassVar[int] = 0
    versions: ClassVar[tuple[int, int]] = (3, 13)
    flexible: ClassVar[int] = 9

    responses: tuple[TopicProduceResponse, ...] = wire(TopicProduceResponse, "0+", array=True)
    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    node_endpoints: tuple[NodeEndpoint, ...] = wire(
        NodeEndpoint, "10+", array=True, tag=0, tagged="10+"
    )
