"""The records of `__transaction_state`, in Kafka's own format (`TransactionLog`).

Key version 0 is a transactional id; value version 1 is its state. Kafka's DumpLogSegments and
transaction log formatter read both. Headwater's own fields are tagged fields from 10000 on, which
Kafka's readers skip: topic ids, the last epoch (a retried InitProducerId carries it), the client.
"""

from __future__ import annotations

import struct
from typing import ClassVar, TypeVar
from uuid import UUID

from headwater.errors import HeadwaterError
from headwater.wire.schema import (
    VERSION_MAX,
    Message,
    SchemaError,
    Struct,
    decoder,
    encoder,
    wire,
    wire_schema,
)
from headwater_broker.coordinator.common.shard import StoredRecord
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import (
    ClientIdentity,
    EndedBy,
    Partition,
    Transaction,
)

KEY_VERSION = 0
VALUE_VERSION = 1
"""Kafka's formatter refuses a newer version: a new field is a tagged field."""

_VERSION = struct.Struct(">h")

M = TypeVar("M", bound=Message)


class NewerTransactionRecordError(HeadwaterError):
    """A newer broker wrote the record: to load without it could commit what it aborted."""


@wire_schema
class TransactionLogKey(Message):
    """Key version 0: the transactional id."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = VERSION_MAX

    transactional_id: str = wire("string")


@wire_schema
class PartitionsSchema(Struct):
    """The enlisted partitions of one topic."""

    topic: str = wire("string")
    partition_ids: tuple[int, ...] = wire("int32", array=True)
    topic_id: UUID = wire("uuid", "1+", tag=10000, tagged="1+", ignorable=True)


@wire_schema
class TransactionLogValue(Message):
    """The state of a transactional id."""

    versions: ClassVar[tuple[int, int]] = (0, 1)
    flexible: ClassVar[int] = 1

    producer_id: int = wire("int64")
    previous_producer_id: int = wire("int64", "1+", tag=0, tagged="1+", default=-1, ignorable=True)
    next_producer_id: int = wire("int64", "1+", tag=1, tagged="1+", default=-1, ignorable=True)
    producer_epoch: int = wire("int16")
    transaction_timeout_ms: int = wire("int32")
    transaction_status: int = wire("int8")
    transaction_partitions: tuple[PartitionsSchema, ...] | None = wire(
        PartitionsSchema, array=True, nullable="0+"
    )
    transaction_last_update_timestamp_ms: int = wire("int64")
    transaction_start_timestamp_ms: int = wire("int64")
    client_transaction_version: int = wire(
        "int16", "1+", tag=2, tagged="1+", default=0, ignorable=True
    )
    next_producer_epoch: int = wire("int16", "1+", tag=3, tagged="1+", default=-1, ignorable=True)
    last_producer_epoch: int = wire(
        "int16", "1+", tag=10000, tagged="1+", default=-1, ignorable=True
    )
    client_principal: str = wire("string", "1+", tag=10001, tagged="1+", ignorable=True)
    client_id: str = wire("string", "1+", tag=10002, tagged="1+", ignorable=True)
    client_host: str = wire("string", "1+", tag=10003, tagged="1+", ignorable=True)
    ended_by: int = wire("int8", "1+", tag=10004, tagged="1+", ignorable=True)


def transaction_key(transactional_id: str) -> bytes:
    """The key of a transactional id."""
    body = encoder(TransactionLogKey, KEY_VERSION)(
        TransactionLogKey(transactional_id=transactional_id)
    )
    return _VERSION.pack(KEY_VERSION) + body


def transaction_record(transaction: Transaction) -> StoredRecord:
    """The record that stores a transaction's state; a Dead one is a tombstone."""
    key = transaction_key(transaction.transactional_id)
    if transaction.state is TransactionState.DEAD:
        return StoredRecord(key, None)
    t = transaction
    value = TransactionLogValue(
        producer_id=t.producer_id,
        previous_producer_id=t.previous_producer_id,
        next_producer_id=t.next_producer_id,
        producer_epoch=t.producer_epoch,
        transaction_timeout_ms=t.timeout_ms,
        transaction_status=int(t.state),
        # Kafka writes null for Empty: nothing is enlisted.
        transaction_partitions=None if t.state is TransactionState.EMPTY else _by_topic(t),
        transaction_last_update_timestamp_ms=t.last_update_ms,
        transaction_start_timestamp_ms=t.start_ms,
        client_transaction_version=t.client_version,
        next_producer_epoch=t.next_producer_epoch,
        last_producer_epoch=t.last_producer_epoch,
        client_principal=t.client.principal,
        client_id=t.client.client_id,
        client_host=t.client.host,
        ended_by=int(t.ended_by),
    )
    encoded = encoder(TransactionLogValue, VALUE_VERSION)(value)
    return StoredRecord(key, _VERSION.pack(VALUE_VERSION) + encoded)


def read_transactional_id(key: bytes) -> str | None:
    """The transactional id that a key names; None for kinds of keys that are not known here.

    Raises SchemaError.
    """
    if len(key) < _VERSION.size:
        raise SchemaError(f"a key of {len(key)} bytes")
    if _VERSION.unpack_from(key)[0] != KEY_VERSION:
        return None
    return decoder(TransactionLogKey, KEY_VERSION)(key, _VERSION.size)[0].transactional_id


def read_transaction(transactional_id: str, value: bytes) -> Transaction:
    """The stored state. Raises SchemaError, NewerTransactionRecordError."""
    if len(value) < _VERSION.size:
        raise SchemaError(f"TransactionLogValue: {len(value)} bytes")
    version = _VERSION.unpack_from(value)[0]
    if not 0 <= version <= VALUE_VERSION:
        raise NewerTransactionRecordError(
            f"state of transactional id {transactional_id!r} has version {version}, this broker "
            f"reads up to {VALUE_VERSION}: run the newer Headwater that wrote it on this broker"
        )
    found = decoder(TransactionLogValue, version)(value, _VERSION.size)[0]
    try:
        state = TransactionState(found.transaction_status)
        ended_by = EndedBy(found.ended_by)
    except ValueError:
        raise NewerTransactionRecordError(
            f"transactional id {transactional_id!r} has the unknown state "
            f"{found.transaction_status}, ended by {found.ended_by}"
        ) from None
    return Transaction(
        transactional_id=transactional_id,
        producer_id=found.producer_id,
        producer_epoch=found.producer_epoch,
        state=state,
        timeout_ms=found.transaction_timeout_ms,
        previous_producer_id=found.previous_producer_id,
        next_producer_id=found.next_producer_id,
        last_producer_epoch=found.last_producer_epoch,
        next_producer_epoch=found.next_producer_epoch,
        client=ClientIdentity(found.client_principal, found.client_id, found.client_host),
        ended_by=ended_by,
        client_version=found.client_transaction_version,
        start_ms=found.transaction_start_timestamp_ms,
        last_update_ms=found.transaction_last_update_timestamp_ms,
        partitions={
            (row.topic, index): row.topic_id
            for row in found.transaction_partitions or ()
            for index in row.partition_ids
        },
    )


def _by_topic(transaction: Transaction) -> tuple[PartitionsSchema, ...]:
    topics: dict[tuple[str, UUID], list[int]] = {}
    for (topic, index), topic_id in sorted(transaction.partitions.items(), key=_order):
        topics.setdefault((topic, topic_id), []).append(index)
    return tuple(
        PartitionsSchema(topic=topic, partition_ids=tuple(indexes), topic_id=topic_id)
        for (topic, topic_id), indexes in topics.items()
    )


def _order(item: tuple[Partition, UUID]) -> Partition:
    return item[0]
