"""DeleteRecords (API key 21), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class DeleteRecordsPartition(Struct):
    """Each partition that we want to delete records from."""

    partition_index: int = wire("int32", "0+")
    offset: int = wire("int64", "0+")


@wire_schema
class DeleteRecordsTopic(Struct):
    """Each topic that we want to delete records from."""

    name: str = wire("string", "0+")
    partitions: tuple[DeleteRecordsPartition, ...] = wire(DeleteRecordsPartition, "0+", array=True)


@wire_schema
class DeleteRecordsRequest(Message):
    """API key 21, versions 0 to 2, flexible from 2."""

    api_key: ClassVar[int] = 21
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 2

    topics: tuple[DeleteRecordsTopic, ...] = wire(DeleteRecordsTopic, "0+", array=True)
    timeout_ms: int = wire("int32", "0+")


@wire_schema
class DeleteRecordsPartitionResult(Struct):
    """Each partition that we wanted to delete records from."""

    partition_index: int = wire("int32", "0+")
    low_watermark: int = wire("int64", "0+")
    error_code: int = wire("int16", "0+")


@wire_schema
class DeleteRecordsTopicResult(Struct):
    """Each topic that we wanted to delete records from."""

    name: str = wire("string", "0+")
    partitions: tuple[DeleteRecordsPartitionResult, ...] = wire(
        DeleteRecordsPartitionResult, "0+", array=True
    )


@wire_schema
class DeleteRecordsResponse(Message):
    """API key 21, versions 0 to 2, flexible from 2."""

    api_key: ClassVar[int] = 21
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32", "0+")
    topics: tuple[DeleteRecordsTopicResult, ...] = wire(DeleteRecordsTopicResult, "0+", array=True)
