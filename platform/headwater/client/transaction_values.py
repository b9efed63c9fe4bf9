"""The values about transactions that `Admin` returns, as tuples. Times are ms since 1970."""

from __future__ import annotations

from typing import NamedTuple

from headwater.client.values import TopicPartition


class ProducerIdAndEpoch(NamedTuple):
    """A producer id with its epoch: a later epoch fences the earlier ones."""

    producer_id: int
    producer_epoch: int


class TransactionListing(NamedTuple):
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    producer_id: int
    state: str
    """One of TRANSACTION_STATES."""
    coordinator: int


class MarkerFailure(NamedTuple):
    """The last failure of a coordinator to write a transaction's marker to a partition."""

    partition: TopicPartition
    error: str
    """The name of the Kafka error code."""
    detail: str
    failed_ms: int | None
    attempts: int


class TransactionDescription(NamedTuple):
    """The state of a transactional id, as its coordinator describes it (KIP-664)."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    """One of TRANSACTION_STATES."""
    coordinator: int
    timeout_ms: int
    """NO_TIMEOUT_MS: a transaction of a two-phase commit, which never times out (KIP-939)."""
    start_ms: int | None
    """None while no transaction is open."""
    partitions: tuple[TopicPartition, ...]
    """Partitions of the open transaction that do not hold its marker yet."""
    principal: str | None
    """Of the client that initialized the producer; brokers of Apache Kafka do not say it. So are
    the fields below."""
    client_id: str | None
    client_host: str | None
    last_update_ms: int | None
    """When the state last changed."""
    marker_failures: tuple[MarkerFailure, ...]


class HangingTransaction(NamedTuple):
    """An open transaction of a partition that no coordinator will end (KIP-664)."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    first_offset: int
    last_timestamp_ms: int
    """Of the producer's last batch in the partition."""
    transactional_id: str | None
    """None: no coordinator knows the producer id."""


class TransactionBlocker(NamedTuple):
    """The open transaction that holds a partition's last stable offset, and so its readers."""

    topic: str
    partition: int
    last_stable_offset: int
    """Readers of read_committed get no record from here on."""
    high_watermark: int
    producer_id: int
    producer_epoch: int
    first_offset: int
    last_timestamp_ms: int
    """Of the producer's last batch in the partition."""
    is_hanging: bool
    """True when no coordinator will end the transaction: `abort_transaction` does."""
    age_ms: int
    """Since the transaction began; since the producer's last batch when it is hanging."""
    transactional_id: str | None
    """None: no coordinator knows the producer id. So are the fields below."""
    state: str | None
    coordinator: int | None
    timeout_ms: int | None
    times_out_in_ms: int | None
    """None: it never times out, or its end is decided. Negative when the timeout is overdue."""
    principal: str | None
    """None from brokers of Apache Kafka, as are the fields below."""
    client_id: str | None
    client_host: str | None
    marker_failure: MarkerFailure | None
    """Why the marker that would free the partition is not written."""
