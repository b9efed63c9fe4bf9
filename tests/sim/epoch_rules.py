"""The invariants of epochs, checked beside those of transactions (`transaction_rules.py`)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from headwater.records.record import read_records
from headwater.topic_names import TRANSACTION_TOPIC
from headwater.wire.epoch_values import EpochState
from headwater_broker.coordinator.transaction.epoch_records import (
    OWN_KIND,
    DecisionKey,
    read_decision,
    read_own_key,
)
from headwater_broker.replica.partition import Partition
from sim.epoch_ledger import AttemptName, EpochAttempt, EpochFate, EpochName
from sim.invariants import Invariant, Seen
from sim.ledger import Key, Ledger
from sim.transaction_ledger import cut
from sim.transaction_rules import transacted, view

if TYPE_CHECKING:
    from sim.broker import Broker
    from sim.world import World

FINAL = (EpochState.COMMITTING, EpochState.ABORTING)


class DecisionsStay(Invariant):
    """A decision record that is committed to the coordinator's log is never contradicted, and one
    attempt of an epoch at most is committed."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._read: dict[int, int] = {}
        """Partition of the topic -> the offset up to which its records were seen."""

    def replica(self, broker: Broker, partition: Partition, before: Seen, ledger: Ledger) -> None:
        if partition.topic != TRANSACTION_TOPIC:
            return
        known = self._read.get(partition.partition, 0)
        if partition.high_watermark <= known:
            return
        self._read[partition.partition] = partition.high_watermark
        for segment in partition.log.segments:
            for header, batch in cut(bytes(segment.file.data)):  # type: ignore[attr-defined]
                if known < header.next_offset <= partition.high_watermark:
                    for record in read_records(batch):
                        self._record(bytes(record.key or b""), record.value)

    def _record(self, key: bytes, value: bytes | memoryview | None) -> None:
        if key[:1] != OWN_KIND or value is None:
            return
        found = read_own_key(key)
        if not isinstance(found, DecisionKey):
            return
        name = (found.sink, found.key.epoch, found.key.ticket)
        state = read_decision(bytes(value)).state
        decisions = self.world.epochs.decisions
        known = decisions.get(name)
        if known in FINAL and state is not known:
            self.fail(f"{name} was {known.name}, and is {state.name}")
        decisions[name] = state
        if state is EpochState.COMMITTING:
            others = [
                other
                for other, decided in decisions.items()
                if other[:2] == name[:2] and other != name and decided is state
            ]
            if others:
                self.fail(f"{name} is committed, and so is {others}")


class NoEpochIsReadEarly(Invariant):
    """A read_committed consumer gets a record of an epoch only once the commit is durable, and only
    of a participant that the commit names."""

    def read_committed(self, key: Key, offset: int, value: bytes) -> None:
        found = self.world.epochs.of_value(value)
        if found is None:
            return
        attempt, prefix = found
        decision = self.world.epochs.decisions.get(attempt.name)
        if decision is not EpochState.COMMITTING:
            shown = "no durable decision" if decision is None else decision.name
            self.fail(f"{key} offset {offset}: {value!r} was read, and its epoch has {shown}")
        if prefix not in attempt.named:
            self.fail(f"{key} offset {offset}: {value!r} was read, and its task is not named")
        if attempt.fate is EpochFate.ABORTED:
            self.fail(f"{key} offset {offset}: {value!r} was read, and its epoch aborted")


class EpochsAreWholeAndOnce(Invariant):
    """Of each epoch the rows of one attempt are committed, each once, all that its commit names; or
    none, where nobody was told that the epoch is committed."""

    def ended(self) -> None:
        found: dict[AttemptName, Counter[tuple[Key, bytes]]] = {}
        epochs = self.world.epochs
        for key in transacted(self.world):
            for value in view(self.world, key).committed.values():
                of = epochs.of_value(value)
                if of is not None:
                    found.setdefault(of[0].name, Counter())[key, value] += 1
        by_epoch: dict[EpochName, list[EpochAttempt]] = {}
        for attempt in epochs.attempts.values():
            by_epoch.setdefault(attempt.name[:2], []).append(attempt)
        for name, attempts in by_epoch.items():
            read = [a for a in attempts if a.name in found]
            if len(read) > 1:
                self.fail(f"{name}: rows of {len(read)} attempts are committed: {read}")
            for attempt in read:
                self._one(attempt, found[attempt.name])
            if not read and name in epochs.committed and not any(map(_may_be_empty, attempts)):
                self.fail(f"{name} was said to be committed, and has no rows: {attempts}")

    def _one(self, attempt: EpochAttempt, found: Counter[tuple[Key, bytes]]) -> None:
        if attempt.fate in (EpochFate.OPEN, EpochFate.ABORTED):
            self.fail(f"{attempt}: its rows are committed")
        if sorted(found.elements()) != attempt.wanted:
            missing = [row for row in attempt.wanted if row not in found]
            extra = [row for row, times in found.items() if times > 1 or row not in attempt.wanted]
            self.fail(f"{attempt.name}: missing {missing[:3]}, too many {extra[:3]}")
        if self.world.epochs.must_be_fenced(attempt):
            self.fail(f"{attempt.name} is committed, and a newer run had fenced it")


def _may_be_empty(attempt: EpochAttempt) -> bool:
    """True for an attempt that may be committed without rows."""
    asked = attempt.fate in (EpochFate.UNKNOWN, EpochFate.DECIDED)
    return asked and not attempt.wanted


class TablesAgree(Invariant):
    """A query that prepares its epochs commits those that its table has, and no others."""

    def ended(self) -> None:
        epochs = self.world.epochs
        for sink, table in epochs.tables.items():
            committed = {
                (epoch, ticket)
                for (name, epoch, ticket), state in epochs.decisions.items()
                if name == sink and state is EpochState.COMMITTING
            }
            for epoch, ticket in committed:
                if table.epochs.get(epoch) != ticket:
                    self.fail(f"{sink}: epoch {epoch} of ticket {ticket} is not in the table")
            for epoch, ticket in table.epochs.items():
                attempt = epochs.attempts[sink, epoch, ticket]
                if (epoch, ticket) not in committed and attempt.wanted:
                    self.fail(f"{sink}: the table has epoch {epoch}, and the log does not")


EPOCHAL: tuple[type[Invariant], ...] = (
    DecisionsStay,
    NoEpochIsReadEarly,
    EpochsAreWholeAndOnce,
    TablesAgree,
)
"""Six more are the clients' own (`spark_queries.py`): `SlotsAreNotShared`, `TicketsRise`,
`NobodyIsFencedWithoutReason`, `EpochsAbortForAReason`, `RewoundCheckpointsAreRefused`,
`SinksMoveOn`."""
