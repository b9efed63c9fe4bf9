"""ListOffsets (API key 2), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class ListOffsetsPartition(Struct):
    """Each partition in the request."""

    partition_index: int = wire("int32", "0+")
    current_leader_epoch: int = wire("int32", "4+", default=-1, ignorable=True)
    timestamp: int = wire("int64", "0+")


@wire_schema
class ListOffsetsTopic(Struct):
    """Each topic in the request."""

    name: str = wire("string", "0+")
    partitions: tuple[ListOffsetsPartition, ...] = wire(ListOffsetsPartition, "0+", array=True)


@wire_schema
class ListOffsetsRequest(Message):
    """API key 2, versions 1 to 11, flexible from 6."""

    api_key: ClassVar[int] = 2
    versions: ClassVar[tuple[int, int]] = (1, 11)
    flexible: ClassVar[int] = 6

    replica_id: int = wire("int32", "0+")
    isolation_level: int = wire("int8", "2+")
    topics: tuple[ListOffsetsTopic, ...] = wire(ListOffsetsTopic, "0+", array=True)
    timeout_ms: int = wire("int32", "10+", ignorable=True)


@wire_schema
class ListOffsetsPartitionResponse(Struct):
    """Each partition in the response."""

    partition_index: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    timestamp: int = wire("int64", "1+", default=-1)
    offset: int = wire("int64", "1+", default=-1)
    leader_epoch: int = wire("int32", "4+", default=-1)


@wire_schema
class ListOffsetsTopicResponse(Struct):
    """Each topic in the response."""

    name: str = wire("string", "0+")
    partitions: tuple[ListOffsetsPartitionResponse, ...] = wire(
        ListOffsetsPartitionResponse, "0+", array=True
    )


@wire_schema
class ListOffsetsResponse(Message):
    """API key 2, versions 1 to 11, flexible from 6."""

    api_key: ClassVar[int] = 2
    versions: ClassVar[tuple[int, int]] = (1, 11)
    flexible: ClassVar[int] = 6

    throttle_time_ms: int = wire("int32", "2+", ignorable=True)
    topics: tuple[ListOffsetsTopicResponse, ...] = wire(ListOffsetsTopicResponse, "0+", array=True)
