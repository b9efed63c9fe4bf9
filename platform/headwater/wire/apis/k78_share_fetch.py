"""ShareFetch (API key 78), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class AcknowledgementBatch(Struct):
    """Offsets that are acknowledged alike, or one type per offset."""

    first_offset: int = wire("int64", "0+")
    last_offset: int = wire("int64", "0+")
    acknowledge_types: tuple[int, ...] = wire("int8", "0+", array=True)


@wire_schema
class FetchPartition(Struct):
    """A partition to fetch from, and what is acknowledged of it."""

    partition_index: int = wire("int32", "0+")
    acknowledgement_batches: tuple[AcknowledgementBatch, ...] = wire(
        AcknowledgementBatch, "0+", array=True
    )


@wire_schema
class FetchTopic(Struct):
    """A topic to fetch from."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[FetchPartition, ...] = wire(FetchPartition, "0+", array=True)


@wire_schema
class ForgottenTopic(Struct):
    """Partitions to remove from the share session."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class ShareFetchRequest(Message):
    """API key 78, versions 1 to 2, flexible from 1."""

    api_key: ClassVar[int] = 78
    versions: ClassVar[tuple[int, int]] = (1, 2)
    flexible: ClassVar[int] = 1

    group_id: str | None = wire("string", "0+", nullable="0+", default=None)
    member_id: str | None = wire("string", "0+", nullable="0+")
    share_session_epoch: int = wire("int32", "0+")
    max_wait_ms: int = wire("int32", "0+")
    min_bytes: int = wire("int32", "0+")
    max_bytes: int = wire("int32", "0+", default=2147483647)
    max_records: int = wire("int32", "0+")
    batch_size: int = wire("int32", "0+")
    share_acquire_mode: int = wire("int8", "2+")
    is_renew_ack: bool = wire("bool", "2+")
    topics: tuple[FetchTopic, ...] = wire(FetchTopic, "0+", array=True)
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(ForgottenTopic, "0+", array=True)


@wire_schema
class LeaderIdAndEpoch(Struct):
    """The current leader of a partition."""

    leader_id: int = wire("int32", "0+")
    leader_epoch: int = wire("int32", "0+")


@wire_schema
class AcquiredRecords(Struct):
    """Offsets acquired by the member."""

    first_offset: int = wire("int64", "0+")
    last_offset: int = wire("int64", "0+")
    delivery_count: int = wire("int16", "0+")


@wire_schema
class PartitionData(Struct):
    """The records of one partition, and what came of its acknowledgements."""

    partition_index: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)
    acknowledge_error_code: int = wire("int16", "0+")
    acknowledge_error_message: str | None = wire("string", "0+", nullable="0+", default=None)
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "0+")
    records: bytes | memoryview = wire("records", "0+")
    acquired_records: tuple[AcquiredRecords, ...] = wire(AcquiredRecords, "0+", array=True)


@wire_schema
class ShareFetchableTopicResponse(Struct):
    """One topic of the response."""

    topic_id: UUID = wire("uuid", "0+")
    partitions: tuple[PartitionData, ...] = wire(PartitionData, "0+", array=True)


@wire_schema
class NodeEndpoint(Struct):
    """Address of a leader that PartitionData names."""

    node_id: int = wire("int32", "0+")
    host: str = wire("string", "0+")
    port: int = wire("int32", "0+")
    rack: str | None = wire("string", "0+", nullable="0+", default=None)


@wire_schema
class ShareFetchResponse(Message):
    """API key 78, versions 1 to 2, flexible from 1."""

    api_key: ClassVar[int] = 78
    versions: ClassVar[tuple[int, int]] = (1, 2)
    flexible: ClassVar[int] = 1

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)
    acquisition_lock_timeout_ms: int = wire("int32", "0+")
    responses: tuple[ShareFetchableTopicResponse, ...] = wire(
        ShareFetchableTopicResponse, "0+", array=True
    )
    node_endpoints: tuple[NodeEndpoint, ...] = wire(NodeEndpoint, "0+", array=True)
