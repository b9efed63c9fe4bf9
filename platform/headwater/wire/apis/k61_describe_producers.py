"""DescribeProducers (API key 61), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class TopicRequest(Struct):
    """The topics to list producers for."""

    name: str = wire("string", "0+")
    partition_indexes: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class DescribeProducersRequest(Message):
    """API key 61, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 61
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    topics: tuple[TopicRequest, ...] = wire(TopicRequest, "0+", array=True)


@wire_schema
class ProducerState(Struct):
    """The active producers for the partition."""

    producer_id: int = wire("int64", "0+")
    producer_epoch: int = wire("int32", "0+")
    last_sequence: int = wire("int32", "0+", default=-1)
    last_timestamp: int = wire("int64", "0+", default=-1)
    coordinator_epoch: int = wire("int32", "0+")
    current_txn_start_offset: int = wire("int64", "0+", default=-1)


@wire_schema
class PartitionResponse(Struct):
    """Each partition in the response."""

    partition_index: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)
    active_producers: tuple[ProducerState, ...] = wire(ProducerState, "0+", array=True)


@wire_schema
class TopicResponse(Struct):
    """Each topic in the response."""

    name: str = wire("string", "0+")
    partitions: tuple[PartitionResponse, ...] = wire(PartitionResponse, "0+", array=True)


@wire_schema
class DescribeProducersResponse(Message):
    """API key 61, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 61
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32", "0+")
    topics: tuple[TopicResponse, ...] = wire(TopicResponse, "0+", array=True)
