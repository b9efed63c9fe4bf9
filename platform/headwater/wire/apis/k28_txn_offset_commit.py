"""TxnOffsetCommit (API key 28), from the published protocol of Apache Kafka 4.4."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class TxnOffsetCommitRequestPartition(Struct):
    """The partitions inside the topic that we want to commit offsets for."""

    partition_index: int = wire("int32", "0+")
    committed_offset: int = wire("int64", "0+")
    committed_leader_epoch: int = wire("int32", "2+", default=-1, ignorable=True)
    committed_metadata: str | None = wire("string", "0+", nullable="0+")


@wire_schema
class TxnOffsetCommitRequestTopic(Struct):
    """Each topic that we want to commit offsets for."""

    name: str = wire("string", "0-5", ignorable=True)
    topic_id: UUID = wire("uuid", "6+", ignorable=True)
    partitions: tuple[TxnOffsetCommitRequestPartition, ...] = wire(
        TxnOffsetCommitRequestPartition, "0+", array=True
    )


@wire_schema
class TxnOffsetCommitRequest(Message):
    """API key 28, versions 0 to 6, flexible from 3."""

    api_key: ClassVar[int] = 28
    versions: ClassVar[tuple[int, int]] = (0, 6)
    flexible: ClassVar[int] = 3

    transactional_id: str = wire("string", "0+")
    group_id: str = wire("string", "0+")
    producer_id: int = wire("int64", "0+")
    producer_epoch: int = wire("int16", "0+")
    generation_id: int = wire("int32", "3+", default=-1)
    member_id: str = wire("string", "3+")
    group_instance_id: str | None = wire("string", "3+", nullable="3+", default=None)
    topics: tuple[TxnOffsetCommitRequestTopic, ...] = wire(
        TxnOffsetCommitRequestTopic, "0+", array=True
    )


@wire_schema
class TxnOffsetCommitResponsePartition(Struct):
    """The responses for each partition in the topic."""

    partition_index: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")


@wire_schema
class TxnOffsetCommitResponseTopic(Struct):
    """The responses for each topic."""

    name: str = wire("string", "0-5", ignorable=True)
    topic_id: UUID = wire("uuid", "6+", ignorable=True)
    partitions: tuple[TxnOffsetCommitResponsePartition, ...] = wire(
        TxnOffsetCommitResponsePartition, "0+", array=True
    )


@wire_schema
class TxnOffsetCommitResponse(Message):
    """API key 28, versions 0 to 6, flexible from 3."""

    api_key: ClassVar[int] = 28
    versions: ClassVar[tuple[int, int]] = (0, 6)
    flexible: ClassVar[int] = 3

    throttle_time_ms: int = wire("int32", "0+")
    topics: tuple[TxnOffsetCommitResponseTopic, ...] = wire(
        TxnOffsetCommitResponseTopic, "0+", array=True
    )
