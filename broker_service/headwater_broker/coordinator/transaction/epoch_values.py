"""Values of epoch transactions: sinks, epochs, requests, replies, names (docs/epochs.md).

A *sink* is what a streaming query, or one batch write, writes to the log. Each of its *epochs* (a
micro-batch) is one transaction of many *participants*: tasks that write with a producer of their
own. One decision record of the epoch commits or aborts them all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.topic_names import topic_name_fault
from headwater.wire.epoch_values import EpochState, EpochStatus, SinkKind
from headwater_broker.coordinator.transaction.transaction import (
    ClientIdentity,
    Partition,
    Transaction,
)

NO_RUN = UUID(int=0)
NONE_YET = -1
"""No epoch is committed, no ticket is aborted."""
SLOTS_MAX = 4_096
"""Participants of a sink at once."""
MARKERS_MAX = 100_000
"""Partitions of one epoch, counted per participant: each takes a marker."""
EPOCHS_IN_FLIGHT_MAX = 2
"""Epochs of a sink that are not complete; one more is BUSY."""
RETIRED_MAX = 1_000
"""Retired runs that a sink remembers."""


def check_sink(sink: str) -> None:
    """Raises INVALID_REQUEST unless a sink can have this name."""
    fault = topic_name_fault(sink)
    if fault:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"sink {sink!r}: {fault}")
    _, dot, last = sink.rpartition(".")
    if dot and last.isdecimal():
        detail = f"sink {sink!r}: the part after the last dot may not be a number"
        raise KafkaError(ErrorCode.INVALID_REQUEST, detail)


class EpochKey(NamedTuple):
    """One attempt to write an epoch; a retry of the epoch has a higher ticket."""

    epoch: int
    ticket: int


class Sink(NamedTuple):
    """The durable state of a sink."""

    name: str
    owner: str
    """The streaming query that writes it; empty: the next one that joins (after a takeover)."""
    kind: SinkKind
    run: UUID
    """The run with the highest ticket."""
    ticket: int
    """The highest ticket seen: calls with a lower one are fenced."""
    last_epoch: int = NONE_YET
    """The last committed epoch."""
    aborted_ticket: int = NONE_YET
    """The highest ticket whose epoch was aborted: it can neither join nor commit any more."""
    retired: tuple[UUID, ...] = ()
    """Earlier runs, the latest last."""
    last_update_ms: int = -1


class EpochDecision(NamedTuple):
    """The durable decision about an epoch; without one the epoch is aborted."""

    state: EpochState
    """PREPARED, COMMITTING or ABORTING."""
    run: UUID
    slots: Mapping[int, int] = {}
    """Slot -> producer epoch of the participants that commit; all others of the epoch abort."""
    start_ms: int = -1
    """When the epoch's first participant joined."""
    decided_ms: int = -1


class EpochRequest(NamedTuple):
    """The part that all requests about an epoch have."""

    sink: str
    owner: str
    run: UUID
    ticket: int
    epoch: int
    kind: SinkKind = SinkKind.QUERY

    @property
    def key(self) -> EpochKey:
        """The attempt that the request is about."""
        return EpochKey(self.epoch, self.ticket)


class JoinRequest(NamedTuple):
    """A task becomes a participant of an epoch."""

    of: EpochRequest
    task: int
    attempt: int
    partitions: Mapping[Partition, UUID]
    """Partitions to enlist at once, with their topics' ids."""
    client: ClientIdentity
    fresh_producer_id: int
    """For a new slot or an exhausted producer; else it is not used."""


class NamedParticipant(NamedTuple):
    """A participant whose rows the driver knows to be written."""

    task: int
    slot: int
    producer_id: int
    producer_epoch: int


class EpochReply(NamedTuple):
    """The answer to a request about an epoch."""

    status: EpochStatus
    last_epoch: int = NONE_YET
    is_complete: bool = False
    """Of COMMITTED: every partition holds its markers."""
    participant: Transaction | None = None
    """Of a join whose status is OPEN."""


class TakenOver(NamedTuple):
    """The sink's state before a takeover."""

    owner: str
    last_epoch: int
