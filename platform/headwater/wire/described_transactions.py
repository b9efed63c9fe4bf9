"""DescribeTransactions with fields of our own: who opened a transaction, why its markers fail.

They are tagged fields from 10000 on, which other clients skip (KIP-482); a response of Apache Kafka
lacks them.
"""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.apis.k65_describe_transactions import TopicData
from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class MarkerError(Struct):
    """The last failure to write the transaction's marker to a partition."""

    topic: str = wire("string", "0+")
    partition: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    error_message: str | None = wire("string", "0+", nullable="0+", default=None)
    failed_ms: int = wire("int64", "0+", default=-1)
    """Time of that failure, in ms since 1970."""
    attempts: int = wire("int32", "0+")


@wire_schema
class DescribedTransaction(Struct):
    """`TransactionState` of DescribeTransactions, with the client that initialized the producer."""

    error_code: int = wire("int16", "0+")
    transactional_id: str = wire("string", "0+")
    transaction_state: str = wire("string", "0+")
    transaction_timeout_ms: int = wire("int32", "0+")
    transaction_start_time_ms: int = wire("int64", "0+")
    producer_id: int = wire("int64", "0+")
    producer_epoch: int = wire("int16", "0+")
    topics: tuple[TopicData, ...] = wire(TopicData, "0+", array=True)
    principal: str = wire("string", "0+", tag=10000, tagged="0+", ignorable=True)
    client_id: str = wire("string", "0+", tag=10001, tagged="0+", ignorable=True)
    client_host: str = wire("string", "0+", tag=10002, tagged="0+", ignorable=True)
    last_update_ms: int = wire("int64", "0+", tag=10003, tagged="0+", default=-1, ignorable=True)
    """When the state last changed, in ms since 1970."""
    marker_errors: tuple[MarkerError, ...] = wire(
        MarkerError, "0+", tag=10004, tagged="0+", ignorable=True, array=True
    )


@wire_schema
class DescribedTransactionsResponse(Message):
    """API key 65, version 0, flexible."""

    api_key: ClassVar[int] = 65
    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32", "0+")
    transaction_states: tuple[DescribedTransaction, ...] = wire(
        DescribedTransaction, "0+", array=True
    )
