"""OffsetFetch (API key 9), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class OffsetFetchRequestTopic(Struct):
    """Each topic we would like to fetch offsets for, or null to fetch offsets for all topics."""

    name: str = wire("string", "0-7")
    partition_indexes: tuple[int, ...] = wire("int32", "0-7", array=True)


@wire_schema
class OffsetFetchRequestTopics(Struct):
    """Each topic we would like to fetch offsets for, or null to fetch offsets for all topics."""

    name: str = wire("string", "8-9", ignorable=True)
    topic_id: UUID = wire("uuid", "10+", ignorable=True)
    partition_indexes: tuple[int, ...] = wire("int32", "8+", array=True)


@wire_schema
class OffsetFetchRequestGroup(Struct):
    """Each group we would like to fetch offsets for."""

    group_id: str = wire("string", "8+")
    member_id: str | None = wire("string", "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = wire("int32", "9+", default=-1, ignorable=True)
    topics: tuple[OffsetFetchRequestTopics, ...] | None = wire(
        OffsetFetchRequestTopics, "8+", array=True, nullable="8+"
    )


@wire_schema
class OffsetFetchRequest(Message):
    """API key 9, versions 1 to 10, flexible from 6."""

    api_key: ClassVar[int] = 9
    versions: ClassVar[tuple[int, int]] = (1, 10)
    flexible: ClassVar[int] = 6

    group_id: str = wire("string", "0-7")
    topics: tuple[OffsetFetchRequestTopic, ...] | None = wire(
        OffsetFetchRequestTopic, "0-7", array=True, nullable="2-7"
    )
    groups: tuple[OffsetFetchRequestGroup, ...] = wire(OffsetFetchRequestGroup, "8+", array=True)
    require_stable: bool = wire("bool", "7+")


@wire_schema
class OffsetFetchResponsePartition(Struct):
    """The responses per partition."""

    partition_index: int = wire("int32", "0-7")
    committed_offset: int = wire("int64", "0-7")
    committed_leader_epoch: int = wire("int32", "5-7", default=-1, ignorable=True)
    metadata: str | None = wire("string", "0-7", nullable="0-7")
    error_code: int = wire("int16", "0-7")


@wire_schema
class OffsetFetchResponseTopic(Struct):
    """The responses per topic."""

    name: str = wire("string", "0-7")
    partitions: tuple[OffsetFetchResponsePartition, ...] = wire(
        OffsetFetchResponsePartition, "0-7", array=True
    )


@wire_schema
class OffsetFetchResponsePartitions(Struct):
    """The responses per partition."""

    partition_index: int = wire("int32", "8+")
    committed_offset: int = wire("int64", "8+")
    committed_leader_epoch: int = wire("int32", "8+", default=-1, ignorable=True)
    metadata: str | None = wire("string", "8+", nullable="8+")
    error_code: int = wire("int16", "8+")


@wire_schema
class OffsetFetchResponseTopics(Struct):
    """The responses per topic."""

    name: str = wire("string", "8-9", ignorable=True)
    topic_id: UUID = wire("uuid", "10+", ignorable=True)
    partitions: tuple[OffsetFetchResponsePartitions, ...] = wire(
        OffsetFetchResponsePartitions, "8+", array=True
    )


@wire_schema
class OffsetFetchResponseGroup(Struct):
    """The responses per group id."""

    group_id: str = wire("string", "8+")
    topics: tuple[OffsetFetchResponseTopics, ...] = wire(
        OffsetFetchResponseTopics, "8+", array=True
    )
    error_code: int = wire("int16", "8+")


@wire_schema
class OffsetFetchResponse(Message):
    """API key 9, versions 1 to 10, flexible from 6."""

    api_key: ClassVar[int] = 9
    versions: ClassVar[tuple[int, int]] = (1, 10)
    flexible: ClassVar[int] = 6

    throttle_time_ms: int = wire("int32", "3+", ignorable=True)
    topics: tuple[OffsetFetchResponseTopic, ...] = wire(OffsetFetchResponseTopic, "0-7", array=True)
    error_code: int = wire("int16", "2-7", ignorable=True)
    groups: tuple[OffsetFetchResponseGroup, ...] = wire(OffsetFetchResponseGroup, "8+", array=True)
