"""DescribeShareGroupOffsets (API key 90), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class DescribeShareGroupOffsetsRequestTopic(Struct):
    """The topics to describe offsets for, or null for all topic-partitions."""

    topic_name: str = wire("string", "0+")
    partitions: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class DescribeShareGroupOffsetsRequestGroup(Struct):
    """The groups to describe offsets for."""

    group_id: str = wire("string", "0+")
    topics: tuple[DescribeShareGroupOffsetsRequestTopic, ...] | None = wire(
        DescribeShareGroupOffsetsRequestTopic, "0+", nullable="0+", array=True
    )


@wire_schema
class DescribeShareGroupOffsetsRequest(Message):
    """API key 90, versions 0 to 1, flexible from 0."""

    api_key: ClassVar[int] = 90
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 0

    groups: tuple[DescribeShareGroupOffsetsRequestGroup, ...] = wire(
        DescribeShareGroupOffsetsRequestGroup, "0+", array=True
    )


@wire_schema
class DescribeShareGroupOffsetsResponsePartition(Struct):
    """DescribeShareGroupOffsetsResponsePartition."""

    partition_index: int = wire("int32", "0+")
    start_offset: int = wire("int64", "0+")
    leader_epoch: int = wire("int32", "0+")
    lag: int = wire("int64", "1+", default=-1, ignorable=True)
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)


@wire_schema
class DescribeShareGroupOffsetsResponseTopic(Struct):
    """The results for each topic."""

    topic_name: str = wire("string", "0+")
    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[DescribeShareGroupOffsetsResponsePartition, ...] = wire(
        DescribeShareGroupOffsetsResponsePartition, "0+", array=True
    )


@wire_schema
class DescribeShareGroupOffsetsResponseGroup(Struct):
    """The results for each group."""

    group_id: str = wire("string", "0+")
    topics: tuple[DescribeShareGroupOffsetsResponseTopic, ...] = wire(
        DescribeShareGroupOffsetsResponseTopic, "0+", array=True
    )
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)


@wire_schema
class DescribeShareGroupOffsetsResponse(Message):
    """API key 90, versions 0 to 1, flexible from 0."""

    api_key: ClassVar[int] = 90
    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32", "0+")
    groups: tuple[DescribeShareGroupOffsetsResponseGroup, ...] = wire(
        DescribeShareGroupOffsetsResponseGroup, "0+", array=True
    )
