"""ElectLeaders (API key 43), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class TopicPartitions(Struct):
    """The topic partitions to elect leaders."""

    topic: str = wire("string", "0+")
    partitions: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class ElectLeadersRequest(Message):
    """API key 43, versions 0 to 2, flexible from 2."""

    api_key: ClassVar[int] = 43
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 2

    election_type: int = wire("int8", "1+")
    topic_partitions: tuple[TopicPartitions, ...] | None = wire(
        TopicPartitions, "0+", array=True, nullable="0+"
    )
    timeout_ms: int = wire("int32", "0+", default=60000)


@wire_schema
class PartitionResult(Struct):
    """The results for each partition."""

    partition_id: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+")


@wire_schema
class ReplicaElectionResult(Struct):
    """The election results, or an empty array if the requester did not have permission and the
    request asks for all partitions.
    """

    topic: str = wire("string", "0+")
    partition_result: tuple[PartitionResult, ...] = wire(PartitionResult, "0+", array=True)


@wire_schema
class ElectLeadersResponse(Message):
    """API key 43, versions 0 to 2, flexible from 2."""

    api_key: ClassVar[int] = 43
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 2

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "1+")
    replica_election_results: tuple[ReplicaElectionResult, ...] = wire(
        ReplicaElectionResult, "0+", array=True
    )
