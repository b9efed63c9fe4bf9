"""AddPartitionsToTxn (API key 24), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar
from uuid import UUID

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class AddPartitionsToTxnTopic(Struct):
    """Part of AddPartitionsToTxnRequest."""

    name: str = wire("string", "0+")
    partitions: tuple[int, ...] = wire("int32", "0+", array=True)
    topic_id: UUID = wire("uuid", "3+", tag=10000, tagged="3+", ignorable=True)
    """Headwater's own field: brokers name the topic's id, clients leave it out."""


@wire_schema
class AddPartitionsToTxnTransaction(Struct):
    """List of transactions to add partitions to."""

    transactional_id: str = wire("string", "4+")
    producer_id: int = wire("int64", "4+")
    producer_epoch: int = wire("int16", "4+")
    verify_only: bool = wire("bool", "4+")
    topics: tuple[AddPartitionsToTxnTopic, ...] = wire(AddPartitionsToTxnTopic, "4+", array=True)
    coordinator_epoch: int = wire("int32", "4+", default=-1, tag=10000, tagged="4+", ignorable=True)
    """Headwater's own field: the latest coordinator epoch that the leader knows of the producer."""


@wire_schema
class AddPartitionsToTxnRequest(Message):
    """API key 24, versions 0 to 5, flexible from 3."""

    api_key: ClassVar[int] = 24
    versions: ClassVar[tuple[int, int]] = (0, 5)
    flexible: ClassVar[int] = 3

    transactions: tuple[AddPartitionsToTxnTransaction, ...] = wire(
        AddPartitionsToTxnTransaction, "4+", array=True
    )
    v3_and_below_transactional_id: str = wire("string", "0-3")
    v3_and_below_producer_id: int = wire("int64", "0-3")
    v3_and_below_producer_epoch: int = wire("int16", "0-3")
    v3_and_below_topics: tuple[AddPartitionsToTxnTopic, ...] = wire(
        AddPartitionsToTxnTopic, "0-3", array=True
    )


@wire_schema
class AddPartitionsToTxnPartitionResult(Struct):
    """Part of AddPartitionsToTxnResponse."""

    partition_index: int = wire("int32", "0+")
    partition_error_code: int = wire("int16", "0+")


@wire_schema
class AddPartitionsToTxnTopicResult(Struct):
    """Part of AddPartitionsToTxnResponse."""

    name: str = wire("string", "0+")
    results_by_partition: tuple[AddPartitionsToTxnPartitionResult, ...] = wire(
        AddPartitionsToTxnPartitionResult, "0+", array=True
    )


@wire_schema
class AddPartitionsToTxnResult(Struct):
    """Results categorized by transactional ID."""

    transactional_id: str = wire("string", "4+")
    topic_results: tuple[AddPartitionsToTxnTopicResult, ...] = wire(
        AddPartitionsToTxnTopicResult, "4+", array=True
    )


@wire_schema
class AddPartitionsToTxnResponse(Message):
    """API key 24, versions 0 to 5, flexible from 3."""

    api_key: ClassVar[int] = 24
    versions: ClassVar[tuple[int, int]] = (0, 5)
    flexible: ClassVar[int] = 3

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "4+", ignorable=True)
    results_by_transaction: tuple[AddPartitionsToTxnResult, ...] = wire(
        AddPartitionsToTxnResult, "4+", array=True
    )
    results_by_topic_v3_and_below: tuple[AddPartitionsToTxnTopicResult, ...] = wire(
        AddPartitionsToTxnTopicResult, "0-3", array=True
    )
