"""OffsetCommit (API key 8), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class OffsetCommitRequestPartition(Struct):
    """Each partition to commit offsets for."""

    partition_index: int = wire("int32", "0+")
    committed_offset: int = wire("int64", "0+")
    committed_leader_epoch: int = wire("int32", "6+", default=-1, ignorable=True)
    committed_metadata: str | None = wire("string", "0+", nullable="0+")


@wire_schema
class OffsetCommitRequestTopic(Struct):
    """The topics to commit offsets for."""

    name: str = wire("string", "0-9", ignorable=True)
    topic_id: UUID = wire("uuid", "10+", ignorable=True)
    partitions: tuple[OffsetCommitRequestPartition, ...] = wire(
        OffsetCommitRequestPartition, "0+", array=True
    )


@wire_schema
class OffsetCommitRequest(Message):
    """API key 8, versions 2 to 10, flexible from 8."""

    api_key: ClassVar[int] = 8
    versions: ClassVar[tuple[int, int]] = (2, 10)
    flexible: ClassVar[int] = 8

    group_id: str = wire("string", "0+")
    generation_id_or_member_epoch: int = wire("int32", "1+", default=-1, ignorable=True)
    member_id: str = wire("string", "1+", ignorable=True)
    group_instance_id: str | None = wire("string", "7+", nullable="7+", default=None)
    retention_time_ms: int = wire("int64", "2-4", default=-1, ignorable=True)
    topics: tuple[OffsetCommitRequestTopic, ...] = wire(OffsetCommitRequestTopic, "0+", array=True)


@wire_schema
class OffsetCommitResponsePartition(Struct):
    """The responses for each partition in the topic."""

    partition_index: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")


@wire_schema
class OffsetCommitResponseTopic(Struct):
    """The responses for each topic."""

    name: str = wire("string", "0-9", ignorable=True)
    topic_id: UUID = wire("uuid", "10+", ignorable=True)
    partitions: tuple[OffsetCommitResponsePartition, ...] = wire(
        OffsetCommitResponsePartition, "0+", array=True
    )


@wire_schema
class OffsetCommitResponse(Message):
    """API key 8, versions 2 to 10, flexible from 8."""

    api_key: ClassVar[int] = 8
    versions: ClassVar[tuple[int, int]] = (2, 10)
    flexible: ClassVar[int] = 8

    throttle_time_ms: int = wire("int32", "3+", ignorable=True)
    topics: tuple[OffsetCommitResponseTopic, ...] = wire(
        OffsetCommitResponseTopic, "0+", array=True
    )
