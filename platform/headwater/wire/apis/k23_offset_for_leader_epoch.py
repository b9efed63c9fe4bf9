"""OffsetForLeaderEpoch (API key 23), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class OffsetForLeaderPartition(Struct):
    """Each partition to get offsets for."""

    partition: int = wire("int32", "0+")
    current_leader_epoch: int = wire("int32", "2+", default=-1, ignorable=True)
    leader_epoch: int = wire("int32", "0+")


@wire_schema
class OffsetForLeaderTopic(Struct):
    """Each topic to get offsets for."""

    topic: str = wire("string", "0+")
    partitions: tuple[OffsetForLeaderPartition, ...] = wire(
        OffsetForLeaderPartition, "0+", array=True
    )


@wire_schema
class OffsetForLeaderEpochRequest(Message):
    """API key 23, versions 2 to 4, flexible from 4."""

    api_key: ClassVar[int] = 23
    versions: ClassVar[tuple[int, int]] = (2, 4)
    flexible: ClassVar[int] = 4

    replica_id: int = wire("int32", "3+", default=-2, ignorable=True)
    topics: tuple[OffsetForLeaderTopic, ...] = wire(OffsetForLeaderTopic, "0+", array=True)


@wire_schema
class EpochEndOffset(Struct):
    """Each partition in the topic we fetched offsets for."""

    error_code: int = wire("int16", "0+")
    partition: int = wire("int32", "0+")
    leader_epoch: int = wire("int32", "1+", default=-1, ignorable=True)
    end_offset: int = wire("int64", "0+", default=-1)


@wire_schema
class OffsetForLeaderTopicResult(Struct):
    """Each topic we fetched offsets for."""

    topic: str = wire("string", "0+")
    partitions: tuple[EpochEndOffset, ...] = wire(EpochEndOffset, "0+", array=True)


@wire_schema
class OffsetForLeaderEpochResponse(Message):
    """API key 23, versions 2 to 4, flexible from 4."""

    api_key: ClassVar[int] = 23
    versions: ClassVar[tuple[int, int]] = (2, 4)
    flexible: ClassVar[int] = 4

    throttle_time_ms: int = wire("int32", "2+", ignorable=True)
    topics: tuple[OffsetForLeaderTopicResult, ...] = wire(
        OffsetForLeaderTopicResult, "0+", array=True
    )
