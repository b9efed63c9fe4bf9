"""The records of `__transaction_state`, in Kafka's own format (`TransactionLog`).

Key version 0 is a transactional id; value version 1 is its state. Kafka's DumpLogSegments and
transaction log formatter read both. Headwater's own fields are tagged fields from 10000 on, which
Kafka's readers skip: topic ids, the last epoch (a retried InitProducerId carries it), the client.

Three records are written and read per transaction; the schema's codecs would be a third of its
cost. So version 1 is packed and parsed here, and a test compares the bytes with the schema's. What
this parser does not read is left to the schema's decoder, which names the fault.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import ClassVar, TypeVar
from uuid import UUID

from headwater.errors import HeadwaterError
from headwater.wire.primitives import read_uvarint, write_uvarint
from headwater.wire.schema import (
    VERSION_MAX,
    Message,
    SchemaError,
    Struct,
    decoder,
    wire,
    wire_schema,
)
from headwater_broker.coordinator.common.shard import StoredRecord
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import (
    ClientIdentity,
    EndedBy,
    Membership,
    Partition,
    Transaction,
)

KEY_VERSION = 0
VALUE_VERSION = 1
"""Kafka's formatter refuses a newer version: a new field is a tagged field."""

_VERSION = struct.Struct(">h")
_KEY_HEAD = struct.Struct(">hh")
_HEAD = struct.Struct(">hqhib")
"""Version, producer id, producer epoch, timeout, status."""
_TIMES = struct.Struct(">qq")
_LAST_EPOCH, _PRINCIPAL, _CLIENT_ID, _HOST, _ENDED_BY, _MEMBERSHIP = range(10000, 10006)
_MEMBER = struct.Struct(">qqiq")
"""Epoch, ticket, task, attempt."""
_TOPIC_ID_TAG = bytes((1, 0x90, 0x4E, 16))
"""One tagged field of 16 bytes, tag 10000."""
_NO_ID = UUID(int=0)
_NOT_PARSED = (IndexError, ValueError, struct.error)
_PACKED_SETS_MAX = 1_000
_PACKED_SET_SIZE_MAX = 100
_packed_sets: dict[tuple[Partition, ...], tuple[Mapping[Partition, UUID], bytes]] = {}
"""Sets of partitions with their bytes: a transaction has its own in two records, and the next one
of its producer mostly the same. So many are remembered; one more forgets them all."""

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
    membership: bytes = wire("bytes", "1+", tag=10005, tagged="1+", ignorable=True)


@lru_cache(maxsize=10_000)
def transaction_key(transactional_id: str) -> bytes:
    """The key of a transactional id."""
    name = transactional_id.encode()
    return _KEY_HEAD.pack(KEY_VERSION, len(name)) + name


def transaction_record(transaction: Transaction) -> StoredRecord:
    """The record that stores a transaction's state; a Dead one is a tombstone."""
    key = transaction_key(transaction.transactional_id)
    if transaction.state is TransactionState.DEAD:
        return StoredRecord(key, None)
    return StoredRecord(key, _packed(transaction))


def read_transactional_id(key: bytes) -> str | None:
    """The transactional id that a key names; None for kinds of keys that are not known here.

    Raises SchemaError.
    """
    if len(key) < _VERSION.size:
        raise SchemaError(f"a key of {len(key)} bytes")
    if _VERSION.unpack_from(key)[0] != KEY_VERSION:
        return None
    name = key[_KEY_HEAD.size :]
    if len(key) >= _KEY_HEAD.size and _KEY_HEAD.unpack_from(key)[1] == len(name) and name.isascii():
        return str(name, "ascii")
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
    if version == VALUE_VERSION:
        try:
            return _parsed(transactional_id, value)
        except _NOT_PARSED:
            pass  # the decoder below names the fault
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
        membership=_membership(found.membership),
    )


def _packed(t: Transaction) -> bytes:
    """The value of version 1."""
    out = bytearray(
        _HEAD.pack(VALUE_VERSION, t.producer_id, t.producer_epoch, t.timeout_ms, int(t.state))
    )
    if t.state is TransactionState.EMPTY:
        out.append(0)  # Kafka writes null for Empty: nothing is enlisted
    else:
        _pack_partitions(out, t.partitions)
    out += _TIMES.pack(t.last_update_ms, t.start_ms)
    count, tags = 0, bytearray()
    if t.previous_producer_id != -1:
        count += 1
        tags += b"\x00\x08" + t.previous_producer_id.to_bytes(8, "big", signed=True)
    if t.next_producer_id != -1:
        count += 1
        tags += b"\x01\x08" + t.next_producer_id.to_bytes(8, "big", signed=True)
    if t.client_version:
        count += 1
        tags += b"\x02\x02" + t.client_version.to_bytes(2, "big", signed=True)
    if t.next_producer_epoch != -1:
        count += 1
        tags += b"\x03\x02" + t.next_producer_epoch.to_bytes(2, "big", signed=True)
    if t.last_producer_epoch != -1:
        count += 1
        tags += b"\x90\x4e\x02" + t.last_producer_epoch.to_bytes(2, "big", signed=True)
    of_client, client = _packed_client(t.client)
    count += of_client
    tags += client
    if t.ended_by:
        count += 1
        tags += b"\x94\x4e\x01" + int(t.ended_by).to_bytes(1, "big", signed=True)
    if t.membership is not None:
        count += 1
        packed = _MEMBER.pack(*t.membership)
        tags += bytes((0x95, 0x4E, len(packed) + 1, len(packed) + 1)) + packed
    out.append(count)
    return bytes(out + tags)


def _pack_partitions(out: bytearray, partitions: Mapping[Partition, UUID]) -> None:
    if len(partitions) == 1:
        [((topic, index), topic_id)] = partitions.items()
        out.append(2)
        _pack_topic(out, topic, topic_id, (index,))
        return
    if len(partitions) > _PACKED_SET_SIZE_MAX:
        _pack_topics(out, partitions)
        return
    key = tuple(partitions)
    known = _packed_sets.get(key)
    if known is None or known[0] != partitions:  # the topics may be others of these names
        packed = bytearray()
        _pack_topics(packed, partitions)
        if len(_packed_sets) >= _PACKED_SETS_MAX:
            _packed_sets.clear()
        known = _packed_sets[key] = (partitions, bytes(packed))
    out += known[1]


def _pack_topics(out: bytearray, partitions: Mapping[Partition, UUID]) -> None:
    topics: list[tuple[str, UUID, list[int]]] = []
    last: tuple[str, UUID, list[int]] | None = None
    for (topic, index), topic_id in sorted(partitions.items(), key=_order):
        if last is None or topic_id is not last[1] or topic != last[0]:  # UUIDs compare slowly
            last = _group_of(topics, topic, topic_id)
        last[2].append(index)
    write_uvarint(out, len(topics) + 1)
    for topic, topic_id, indexes in topics:
        _pack_topic(out, topic, topic_id, indexes)


def _group_of(
    topics: list[tuple[str, UUID, list[int]]], topic: str, topic_id: UUID
) -> tuple[str, UUID, list[int]]:
    """The group of a topic, whose name is the last one or a new one: one that was deleted and made
    again may be here under both ids."""
    for known in reversed(topics):
        if known[0] != topic:
            break
        if known[1] == topic_id:
            return known
    topics.append((topic, topic_id, []))
    return topics[-1]


def _pack_topic(out: bytearray, topic: str, topic_id: UUID, indexes: Sequence[int]) -> None:
    out += _packed_string(topic)
    write_uvarint(out, len(indexes) + 1)
    out += struct.pack(f">{len(indexes)}i", *indexes)
    if topic_id.int == 0:
        out.append(0)
    else:
        out += _TOPIC_ID_TAG
        out += topic_id.int.to_bytes(16, "big")


@lru_cache(maxsize=1024)
def _packed_client(client: ClientIdentity) -> tuple[int, bytes]:
    """The number of tagged fields of a client, and their bytes."""
    count, out = 0, bytearray()
    fields = ((_PRINCIPAL, client.principal), (_CLIENT_ID, client.client_id), (_HOST, client.host))
    for tag, text in fields:
        if text:
            count += 1
            packed = _packed_string(text)
            write_uvarint(out, tag)
            write_uvarint(out, len(packed))
            out += packed
    return count, bytes(out)


@lru_cache(maxsize=1024)
def _packed_string(text: str) -> bytes:
    data = text.encode()
    if len(data) < 127:
        return bytes((len(data) + 1,)) + data
    out = bytearray()
    write_uvarint(out, len(data) + 1)
    return bytes(out + data)


def _parsed(transactional_id: str, value: bytes) -> Transaction:
    """The state in a value of version 1. Raises one of _NOT_PARSED."""
    view = memoryview(value)
    _, producer_id, epoch, timeout_ms, status = _HEAD.unpack_from(view)
    partitions, at = _parsed_partitions(view, _HEAD.size)
    last_update_ms, start_ms = _TIMES.unpack_from(view, at)
    at += _TIMES.size
    count, at = read_uvarint(view, at)
    numbers = {0: -1, 1: -1, 2: 0, 3: -1, _LAST_EPOCH: -1, _ENDED_BY: 0}
    texts = {_PRINCIPAL: "", _CLIENT_ID: "", _HOST: ""}
    membership = None
    for _ in range(count):
        tag, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        if tag in numbers:
            numbers[tag] = int.from_bytes(view[at : at + size], "big", signed=True)
        elif tag in texts:
            length, start = read_uvarint(view, at)
            if start + length - 1 != at + size:
                raise ValueError("a string of another size than its field")
            texts[tag] = str(view[start : at + size], "utf-8")
        elif tag == _MEMBERSHIP:
            membership = _membership(view[at + 1 : at + size])
        at += size
    if at != len(view):
        raise ValueError("the fields do not fill the value")
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        state=TransactionState(status),
        timeout_ms=timeout_ms,
        previous_producer_id=numbers[0],
        next_producer_id=numbers[1],
        last_producer_epoch=numbers[_LAST_EPOCH],
        next_producer_epoch=numbers[3],
        client=ClientIdentity(*texts.values()),
        ended_by=EndedBy(numbers[_ENDED_BY]),
        client_version=numbers[2],
        start_ms=start_ms,
        last_update_ms=last_update_ms,
        partitions=partitions,
        membership=membership,
    )


def _membership(data: bytes | memoryview) -> Membership | None:
    """Raises SchemaError."""
    if not data:
        return None
    if len(data) < _MEMBER.size:
        raise SchemaError(f"a membership of {len(data)} bytes")
    return Membership(*_MEMBER.unpack_from(data))


def _parsed_partitions(view: memoryview, at: int) -> tuple[dict[Partition, UUID], int]:
    partitions: dict[Partition, UUID] = {}
    topics, at = read_uvarint(view, at)
    for _ in range(topics - 1):
        size, at = read_uvarint(view, at)
        if not size:
            raise ValueError("a topic without a name")
        topic = str(view[at : at + size - 1], "utf-8")
        at += size - 1
        count, at = read_uvarint(view, at)
        indexes = struct.unpack_from(f">{count - 1}i", view, at)
        at += 4 * (count - 1)
        if view[at] == 0:
            topic_id, at = _NO_ID, at + 1
        elif view[at : at + 4] == _TOPIC_ID_TAG:
            topic_id, at = _uuid(bytes(view[at + 4 : at + 20])), at + 20
        else:
            raise ValueError("other tagged fields than those known here")
        for index in indexes:
            partitions[topic, index] = topic_id
    return partitions, at


@lru_cache(maxsize=1024)
def _uuid(data: bytes) -> UUID:
    return UUID(bytes=data)


def _order(item: tuple[Partition, UUID]) -> Partition:
    return item[0]
