"""Sinks and their epochs (docs/epochs.md) as `Admin` and `EpochClient` describe them.

A sink is written by runs of one Spark query, its owner. A micro-batch is an epoch of the sink.
Times are ms since 1970.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypedDict
from uuid import UUID

from headwater.client.values import TopicPartition
from headwater.wire.apis.k10006_describe_sinks import (
    DescribedEpoch,
    DescribedParticipant,
    DescribedSink,
)
from headwater.wire.epoch_values import EpochState, SinkKind

COMPLETING_STATES = (EpochState.COMMITTING.label, EpochState.ABORTING.label)


class WriterFields(TypedDict):
    """The identity of an epoch's writer, as requests name it."""

    sink: str
    owner: str
    run: UUID
    ticket: int
    epoch: int


@dataclass(frozen=True, slots=True)
class EpochWriter:
    """One run's identity as the writer of one epoch: every call names it."""

    sink: str
    owner: str
    """The id of the streaming query, or of the batch write."""
    run: UUID
    ticket: int
    """From `allocate_ticket`: orders the runs of a sink."""
    epoch: int
    """Spark's batch id."""
    kind: SinkKind = SinkKind.QUERY

    def fields(self) -> WriterFields:
        """The fields that every request about the epoch begins with."""
        return WriterFields(
            sink=self.sink, owner=self.owner, run=self.run, ticket=self.ticket, epoch=self.epoch
        )

    def __str__(self) -> str:
        return f"epoch {self.epoch} of sink {self.sink!r}"


class SinkParticipant(NamedTuple):
    """A task's part of an epoch: one transaction of one slot of the sink."""

    slot: int
    task: int
    attempt: int
    producer_id: int
    producer_epoch: int
    state: str
    """One of TRANSACTION_STATES."""
    partitions: tuple[TopicPartition, ...]
    """Partitions that do not hold the participant's marker yet."""


class SinkEpoch(NamedTuple):
    """An epoch that is not complete."""

    epoch: int
    run: UUID
    ticket: int
    state: str
    """Open, Prepared, Committing or Aborting."""
    start_ms: int
    deadline_ms: int | None
    """When the coordinator aborts it; None: never (it is prepared or decided)."""
    participants: tuple[SinkParticipant, ...]


class SinkDescription(NamedTuple):
    """A sink as its coordinator describes it."""

    sink: str
    owner: str
    """The id of the streaming query, or of the batch write; empty: the next one that joins."""
    kind: str
    """"query" or "batch"."""
    run: UUID
    """The run that wrote last."""
    ticket: int
    last_epoch: int | None
    """The last committed epoch."""
    last_update_ms: int | None
    retired_runs: int
    slots: int
    coordinator: int
    epochs: tuple[SinkEpoch, ...]


class SinkTakeover(NamedTuple):
    """What a takeover replaced."""

    sink: str
    previous_owner: str
    previous_last_epoch: int | None


def sink_description(row: DescribedSink, coordinator: int) -> SinkDescription:
    """The value of a row of DescribeSinks."""
    return SinkDescription(
        sink=row.sink,
        owner=row.owner,
        kind=SinkKind(row.kind).name.lower(),
        run=row.run,
        ticket=row.ticket,
        last_epoch=none_if_negative(row.last_epoch),
        last_update_ms=none_if_negative(row.last_update_ms),
        retired_runs=row.retired_runs,
        slots=row.slots,
        coordinator=coordinator,
        epochs=tuple(_epoch(e) for e in row.epochs),
    )


def none_if_negative(value: int) -> int | None:
    """None for the -1 that stands for "none" on the wire."""
    return None if value < 0 else value


def _epoch(row: DescribedEpoch) -> SinkEpoch:
    return SinkEpoch(
        epoch=row.epoch,
        run=row.run,
        ticket=row.ticket,
        state=row.state,
        start_ms=row.start_ms,
        deadline_ms=none_if_negative(row.deadline_ms),
        participants=tuple(_participant(p) for p in row.participants),
    )


def _participant(row: DescribedParticipant) -> SinkParticipant:
    return SinkParticipant(
        slot=row.slot,
        task=row.task,
        attempt=row.attempt,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        state=row.state,
        partitions=tuple(_partition(text) for text in row.partitions),
    )


def _partition(text: str) -> TopicPartition:
    topic, _, partition = text.rpartition("-")
    return TopicPartition(topic, int(partition))
