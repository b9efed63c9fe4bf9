"""The records of epoch transactions in `__transaction_state`.

Key types 0x4801 (a sink), 0x4802 (the decision about an epoch, by sink, epoch and ticket) and
0x4803 (tickets) are Headwater's own: Kafka's loader, formatter and DumpLogSegments skip them. The
ticket is part of a decision's key: the decision about a retry must not replace the first one in
a compacted log. Participants are ordinary records of transactional ids (`records`).
"""

from __future__ import annotations

import struct
from typing import ClassVar, NamedTuple, TypeVar
from uuid import UUID

from headwater.wire.epoch_values import EpochState, SinkKind
from headwater.wire.schema import (
    Message,
    SchemaError,
    Struct,
    decode,
    decoder,
    encode,
    wire,
    wire_schema,
)
from headwater_broker.coordinator.common.shard import StoredRecord
from headwater_broker.coordinator.transaction.epoch_values import EpochDecision, EpochKey, Sink
from headwater_broker.coordinator.transaction.records import NewerTransactionRecordError

OWN_KIND = b"\x48"
"""The first byte of keys of Headwater's own kinds."""
SINK_KIND, DECISION_KIND, TICKETS_KIND = 0x4801, 0x4802, 0x4803
VALUE_VERSION = 0
_KIND = struct.Struct(">H")
_VERSION = struct.Struct(">h")

M = TypeVar("M", bound=Message)


@wire_schema
class SinkRecordKey(Message):
    """Key type 0x4801."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    sink: str = wire("string")


@wire_schema
class SinkRecordValue(Message):
    """The state of a sink."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    owner: str = wire("string")
    kind: int = wire("int8")
    run: UUID = wire("uuid")
    ticket: int = wire("int64")
    last_epoch: int = wire("int64")
    aborted_ticket: int = wire("int64")
    retired_runs: tuple[UUID, ...] = wire("uuid", array=True)
    last_update_ms: int = wire("int64")


@wire_schema
class DecisionRecordKey(Message):
    """Key type 0x4802."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    sink: str = wire("string")
    epoch: int = wire("int64")
    ticket: int = wire("int64")


@wire_schema
class DecidedSlot(Struct):
    """A participant that commits."""

    slot: int = wire("int32")
    producer_epoch: int = wire("int16")


@wire_schema
class DecisionRecordValue(Message):
    """The decision about an epoch. It never lists partitions: it would outgrow a batch."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    state: int = wire("int8")
    run: UUID = wire("uuid")
    slots: tuple[DecidedSlot, ...] = wire(DecidedSlot, array=True)
    start_ms: int = wire("int64")
    decided_ms: int = wire("int64")


@wire_schema
class TicketsRecordValue(Message):
    """Key type 0x4803, which has no fields: the tickets that are reserved."""

    versions: ClassVar[tuple[int, int]] = (0, 0)
    flexible: ClassVar[int] = 0

    reserved_end: int = wire("int64")
    """Lower tickets may have been allocated."""


class SinkKey(NamedTuple):
    """The key of a sink's record."""

    sink: str


class DecisionKey(NamedTuple):
    """The key of a decision's record."""

    sink: str
    key: EpochKey


class TicketsKey(NamedTuple):
    """The key of the tickets' record."""


OwnKey = SinkKey | DecisionKey | TicketsKey
OWN_TICKETS_KEY = _KIND.pack(TICKETS_KIND)


def sink_record(sink: Sink) -> StoredRecord:
    """The record of a sink's state."""
    value = SinkRecordValue(
        owner=sink.owner,
        kind=sink.kind,
        run=sink.run,
        ticket=sink.ticket,
        last_epoch=sink.last_epoch,
        aborted_ticket=sink.aborted_ticket,
        retired_runs=sink.retired,
        last_update_ms=sink.last_update_ms,
    )
    return StoredRecord(_sink_key(sink.name), _versioned(value))


def sink_tombstone(name: str) -> StoredRecord:
    """The record that deletes a sink."""
    return StoredRecord(_sink_key(name), None)


def decision_record(sink: str, key: EpochKey, decision: EpochDecision) -> StoredRecord:
    """The record that decides an epoch."""
    value = DecisionRecordValue(
        state=decision.state,
        run=decision.run,
        slots=tuple(
            DecidedSlot(slot=slot, producer_epoch=epoch) for slot, epoch in decision.slots.items()
        ),
        start_ms=decision.start_ms,
        decided_ms=decision.decided_ms,
    )
    return StoredRecord(_decision_key(sink, key), _versioned(value))


def decision_tombstone(sink: str, key: EpochKey) -> StoredRecord:
    """The record that an epoch is complete."""
    return StoredRecord(_decision_key(sink, key), None)


def tickets_record(reserved_end: int) -> StoredRecord:
    """The record that reserves tickets."""
    return StoredRecord(OWN_TICKETS_KEY, _versioned(TicketsRecordValue(reserved_end=reserved_end)))


def read_own_key(data: bytes) -> OwnKey | None:
    """The thing that a key of Headwater's own kinds names; None for kinds that are not known here.

    Raises SchemaError.
    """
    if len(data) < _KIND.size:
        raise SchemaError(f"a key of {len(data)} bytes")
    kind, rest = _KIND.unpack_from(data)[0], data[_KIND.size :]
    if kind == SINK_KIND:
        return SinkKey(decode(SinkRecordKey, 0, rest).sink)
    if kind == DECISION_KIND:
        found = decode(DecisionRecordKey, 0, rest)
        return DecisionKey(found.sink, EpochKey(found.epoch, found.ticket))
    return TicketsKey() if kind == TICKETS_KIND else None


def read_sink(name: str, data: bytes) -> Sink:
    """A sink's state. Raises SchemaError, NewerTransactionRecordError."""
    found = _read(SinkRecordValue, data)
    try:
        kind = SinkKind(found.kind)
    except ValueError:
        raise NewerTransactionRecordError(
            f"sink {name!r} has the unknown kind {found.kind}"
        ) from None
    return Sink(
        name=name,
        owner=found.owner,
        kind=kind,
        run=found.run,
        ticket=found.ticket,
        last_epoch=found.last_epoch,
        aborted_ticket=found.aborted_ticket,
        retired=found.retired_runs,
        last_update_ms=found.last_update_ms,
    )


def read_decision(data: bytes) -> EpochDecision:
    """The decision about an epoch. Raises SchemaError, NewerTransactionRecordError."""
    found = _read(DecisionRecordValue, data)
    try:
        state = EpochState(found.state)
    except ValueError:
        raise NewerTransactionRecordError(
            f"an epoch is decided as the unknown state {found.state}"
        ) from None
    return EpochDecision(
        state=state,
        run=found.run,
        slots={row.slot: row.producer_epoch for row in found.slots},
        start_ms=found.start_ms,
        decided_ms=found.decided_ms,
    )


def read_tickets(data: bytes) -> int:
    """The end of the reserved tickets. Raises SchemaError, NewerTransactionRecordError."""
    return _read(TicketsRecordValue, data).reserved_end


def _sink_key(name: str) -> bytes:
    return _KIND.pack(SINK_KIND) + encode(SinkRecordKey(sink=name), 0)


def _decision_key(sink: str, key: EpochKey) -> bytes:
    fields = DecisionRecordKey(sink=sink, epoch=key.epoch, ticket=key.ticket)
    return _KIND.pack(DECISION_KIND) + encode(fields, 0)


def _versioned(value: Message) -> bytes:
    return _VERSION.pack(VALUE_VERSION) + encode(value, VALUE_VERSION)


def _read(schema: type[M], data: bytes) -> M:
    if len(data) < _VERSION.size:
        raise SchemaError(f"{schema.__name__}: {len(data)} bytes")
    version = _VERSION.unpack_from(data)[0]
    if version != VALUE_VERSION:
        raise NewerTransactionRecordError(
            f"{schema.__name__} has version {version}, this broker reads {VALUE_VERSION}: run the "
            "newer Headwater that wrote it on this broker"
        )
    return decoder(schema, version)(data, _VERSION.size)[0]
