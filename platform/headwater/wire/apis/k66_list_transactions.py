"""ListTransactions (API key 66), from the published protocol of Apache Kafka 4.3."""

from __future__ import annotations

from typing import ClassVar

from headwater.wire.schema import Message, Struct, wire, wire_schema


@wire_schema
class ListTransactionsRequest(Message):
    """API key 66, versions 0 to 2, flexible from 0."""

    api_key: ClassVar[int] = 66
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 0

    state_filters: tuple[str, ...] = wire("string", "0+", array=True)
    producer_id_filters: tuple[int, ...] = wire("int64", "0+", array=True)
    duration_filter: int = wire("int64", "1+", default=-1)
    transactional_id_pattern: str | None = wire("string", "2+", nullable="2+", default=None)


@wire_schema
class TransactionState(Struct):
    """The current state of the transaction for the transactional id."""

    transactional_id: str = wire("string", "0+")
    producer_id: int = wire("int64", "0+")
    transaction_state: str = wire("string", "0+")


@wire_schema
class ListTransactionsResponse(Message):
    """API key 66, versions 0 to 2, flexible from 0."""

    api_key: ClassVar[int] = 66
    versions: ClassVar[tuple[int, int]] = (0, 2)
    flexible: ClassVar[int] = 0

    throttle_time_ms: int = wire("int32", "0+")
    error_code: int = wire("int16", "0+")
    unknown_state_filters: tuple[str, ...] = wire("string", "0+", array=True)
    transaction_states: tuple[TransactionState, ...] = wire(TransactionState, "0+", array=True)
