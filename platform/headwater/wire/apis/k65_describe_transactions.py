"""DescribeTransactions (API key 65), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class DescribeTransactionsRequest(Message):
    """API key 65, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 65
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    transactional_ids: tuple[str, ...] = wire("string", "0+", array=True)


@wire_schema
class TopicData(Struct):
    """The set of partitions included in the current transaction (if active). When a
    transaction is preparing to commit or abort, this will include only partitions which do
    not have markers.
    """

    topic: str = wire("string", "0+")
    partitions: tuple[int, ...] = wire("int32", "0+", array=True)


@wire_schema
class TransactionState(Struct):
    """The current state of the transaction."""

    error_code: int = wire("int16", "0+")
    transactional_id: str = wire("string", "0+")
    transaction_state: str = wire("string", "0+")
    transaction_timeout_ms: int = wire("int32", "0+")
    transaction_start_time_ms: int = wire("int64", "0+")
    producer_id: int = wire("int64", "0+")
    producer_epoch: int = wire("int16", "0+")
    topics: tuple[TopicData, ...] = wire(TopicData, "0+", array=True)


@wire_schema
class DescribeTransactionsResponse(Message):
    """API key 65, versions 0 to 0, flexible from 0."""

    api_key: ClassVar[int] = 65
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32", "0+")
    transaction_states: tuple[TransactionState, ...] = wire(TransactionState, "0+", array=True)
