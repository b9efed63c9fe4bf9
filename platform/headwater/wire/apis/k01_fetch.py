"""Fetch (API key 1), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class ReplicaState(Struct):
    """The state of the replica in the follower."""

    replica_id: int = wire("int32", "15+", default=-1)
    replica_epoch: int = wire("int64", "15+", default=-1)


@wire_schema
class FetchPartition(Struct):
    """The partitions to fetch."""

    partition: int = wire("int32", "0+")
    current_leader_epoch: int = wire("int32", "9+", default=-1, ignorable=True)
    fetch_offset: int = wire("int64", "0+")
    last_fetched_epoch: int = wire("int32", "12+", default=-1)
    log_start_offset: int = wire("int64", "5+", default=-1, ignorable=True)
    partition_max_bytes: int = wire("int32", "0+")
    replica_directory_id: UUID = wire("uuid", "17+", tag=0, tagged="17+", ignorable=True)
    high_watermark: int = wire(
        "int64", "18+", default=9223372036854775807, tag=1, tagged="18+", ignorable=True
    )


@wire_schema
class FetchTopic(Struct):
    """The topics to fetch."""

    topic: str = wire("string", "0-12", ignorable=True)
    topic_id: UUID = wire("uuid", "13+", ignorable=True)
    partitions: tuple[FetchPartition, ...] = wire(FetchPartition, "0+", array=True)


@wire_schema
class ForgottenTopic(Struct):
    """In an incremental fetch request, the partitions to remove."""

    topic: str = wire("string", "7-12", ignorable=True)
    topic_id: UUID = wire("uuid", "13+", ignorable=True)
    partitions: tuple[int, ...] = wire("int32", "7+", array=True)


@wire_schema
class FetchRequest(Message):
    """API key 1, versions 4 to 18, flexible from 12."""

    api_key: ClassVar[int] = 1
    versions: ClassVar[tuple[int, int]] = (4, 18)
    flexible: ClassVar[int] = 12

    cluster_id: str | None = wire(
        "string", "12+", nullable="12+", default=None, tag=0, tagged="12+", ignorable=True
    )
    replica_id: int = wire("int32", "0-14", default=-1)
    replica_state: ReplicaState = wire(ReplicaState, "15+", tag=1, tagged="15+")
    max_wait_ms: int = wire("int32", "0+")
    min_bytes: int = wire("int32", "0+")
    max_bytes: int = wire("int32", "3+", default=2147483647, ignorable=True)
    isolation_level: int = wire("int8", "4+", ignorable=True)
    session_id: int = wire("int32", "7+", ignorable=True)
    session_epoch: int = wire("int32", "7+", default=-1, ignorable=True)
    topics: tuple[FetchTopic, ...] = wire(FetchTopic, "0+", array=True)
    forgotten_topics_data: tuple[ForgottenTopic, ...] = wire(ForgottenTopic, "7+", array=True)
    rack_id: str = wire("string", "11+", ignorable=True)


@wire_schema
class EpochEndOffset(Struct):
    """In case divergence is detected based on the `LastFetchedEpoch` and `FetchOffset` in the
    request, this field indicates the largest epoch and its end offset such that subsequent
    records are known to diverge.
    """

    epoch: int = wire("int32", "12+", default=-1)
    end_offset: int = wire("int64", "12+", default=-1)


@wire_schema
class LeaderIdAndEpoch(Struct):
    """The current leader of the partition."""

    leader_id: int = wire("int32", "12+", default=-1)
    leader_epoch: int = wire("int32", "12+", default=-1)


@wire_schema
class SnapshotId(Struct):
    """In the case of fetching an offset less than the LogStartOffset, this is the end offset
    and epoch that should be used in the FetchSnapshot request.
    """

    end_offset: int = wire("int64", "0+", default=-1)
    epoch: int = wire("int32", "0+", default=-1)


@wire_schema
class AbortedTransaction(Struct):
    """The aborted transactions."""

    producer_id: int = wire("int64", "4+")
    first_offset: int = wire("int64", "4+")


@wire_schema
class PartitionData(Struct):
    """The topic partitions."""

    partition_index: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    high_watermark: int = wire("int64", "0+")
    last_stable_offset: int = wire("int64", "4+", default=-1, ignorable=True)
    log_start_offset: int = wire("int64", "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = wire(EpochEndOffset, "12+", tag=0, tagged="12+")
    current_leader: LeaderIdAndEpoch = wire(LeaderIdAndEpoch, "12+", tag=1, tagged="12+")
    snapshot_id: SnapshotId = wire(SnapshotId, "12+", tag=2, tagged="12+")
    aborted_transactions: tuple[AbortedTransaction, ...] | None = wire(
        AbortedTransaction, "4+", array=True, nullable="4+", ignorable=True
    )
    preferred_read_replica: int = wire("int32", "11+", default=-1)
    records: bytes | memoryview | None = wire("records", "0+", nullable="0+")


@wire_schema
class FetchableTopicResponse(Struct):
    """The response topics."""

    topic: str = wire("string", "0-12", ignorable=True)
    topic_id: UUID = wire("uuid", "13+", ignorable=True)
    partitions: tuple[PartitionData, ...] = wire(PartitionData, "0+", array=True)


@wire_schema
class NodeEndpoint(Struct):
    """Endpoints for all current-leaders enumerated in PartitionData, with errors
    NOT_LEADER_OR_FOLLOWER & FENCED_LEADER_EPOCH.
    """

    node_id: int = wire("int32", "16+")
    host: str = wire("string", "16+")
    port: int = wire("int32", "16+")
    rack: str | None = wire("string", "16+", nullable="16+", default=None)


@wire_schema
class FetchResponse(Message):
    """API key 1, versions 4 to 18, flexible from 12."""

    api_key: ClassVar[int] = 1
    versions: ClassVar[tuple[int, int]] = (4, 18)
    flexible: ClassVar[int] = 12

    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    error_code: int = wire("int16", "7+", ignorable=True)
    session_id: int = wire("int32", "7+")
    responses: tuple[FetchableTopicResponse, ...] = wire(FetchableTopicResponse, "0+", array=True)
    node_endpoints: tuple[NodeEndpoint, ...] = wire(
        NodeEndpoint, "16+", array=True, tag=0, tagged="16+"
    )
