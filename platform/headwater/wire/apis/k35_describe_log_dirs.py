"""DescribeLogDirs (API key 35), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class DescribableLogDirTopic(Struct):
    """Each topic that we want to describe log directories for, or null for all topics."""

    topic: str = wire("string", "0+")
    partitions: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class DescribeLogDirsRequest(Message):
    """API key 35, versions 1 to 5, flexible from 2."""

    api_key: ClassVar[int] = 35
    versions: ClassVar[tuple[int, int]] = (1, 5)
    flexible: ClassVar[int] = 2

    topics: tuple[DescribableLogDirTopic, ...] | None = wire(
        DescribableLogDirTopic, "0+", array=True, nullable="0+"
    )


@wire_schema
class DescribeLogDirsPartition(Struct):
    """The partitions."""

    partition_index: int = wire("int32", "0+")
    partition_size: int = wire("int64", "0+")
    offset_lag: int = wire("int64", "0+")
    is_future_key: bool = wire("bool", "0+")


@wire_schema
class DescribeLogDirsTopic(Struct):
    """The topics."""

    name: str = wire("string", "0+")
    partitions: tuple[DescribeLogDirsPartition, ...] = wire(
        DescribeLogDirsPartition, "0+", array=True
    )


@wire_schema
class DescribeLogDirsResult(Struct):
    """The log directories."""

    error_code: int = wire("int16", "0+")
    log_dir: str = wire("string", "0+")
    topics: tuple[DescribeLogDirsTopic, ...] = wire(DescribeLogDirsTopic, "0+", array=True)
    total_bytes: int = wire("int64", "4+", default=-1, ignorable=True)
    usable_bytes: int = wire("int64", "4+", default=-1, ignorable=True)
    is_cordoned: bool = wire("bool", "5+", ignorable=True)


@wire_schema
class DescribeLogDirsResponse(Message):
    """API key 35, versions 1 to 5, flexible from 2."""

    api_key: ClassVar[int] = 35
    versions: ClassVar[tuple[int, int]] = (1, 5)
    flexible: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "3+", ignorable=True)
    results: tuple[DescribeLogDirsResult, ...] = wire(DescribeLogDirsResult, "0+", array=True)
