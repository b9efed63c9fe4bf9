"""The ledger of epochs: what Spark's drivers and tasks know of each, and what the logs decided.

A record's value is `sink/epoch/ticket/task.attempt#number`: it names the participant that wrote it,
and no other has its prefix.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from uuid import UUID

from headwater.wire.epoch_values import EpochState
from sim.ledger import Key

EpochName = tuple[str, int]
"""(sink, epoch)."""
AttemptName = tuple[str, int, int]
"""(sink, epoch, ticket)."""


class EpochFate(Enum):
    """The outcome of an attempt to write an epoch, as its driver knows it."""

    OPEN = "nobody asked to commit it"
    UNKNOWN = "its commit was asked for, and not answered"
    DECIDED = "its commit was answered COMMITTED: this attempt, or another one of the epoch, is"
    ABORTED = "it is aborted: nobody may read it"


@dataclass(slots=True)
class EpochAttempt:
    """One attempt of one run to write an epoch."""

    sink: str
    epoch: int
    ticket: int
    run: UUID
    began_s: float
    fate: EpochFate = EpochFate.OPEN
    last_sign_s: float = 0.0
    """Of the last join, heartbeat or write that was answered."""
    commit_sent_s: float | None = None
    named: frozenset[str] = frozenset()
    """Prefixes of the participants that the commit names."""
    is_abort_sent: bool = False
    records: dict[str, list[tuple[Key, bytes]]] = field(default_factory=dict)
    """Prefix of a participant -> the records that it sent, whatever became of them."""

    @property
    def name(self) -> AttemptName:
        """Its key in the coordinator's log, too."""
        return self.sink, self.epoch, self.ticket

    @property
    def wanted(self) -> list[tuple[Key, bytes]]:
        """What must be read, if this attempt is committed."""
        return sorted(r for prefix in self.named for r in self.records.get(prefix, ()))


@dataclass(slots=True)
class CommittedTable:
    """The other half of an exactly-once write: a table whose commits carry epoch and ticket.

    A run claims it with its ticket first, so that an earlier one cannot commit any more.
    """

    ticket: int = -1
    epochs: dict[int, int] = field(default_factory=dict)
    """Epoch -> ticket of the attempt that the table has."""

    def claim(self, ticket: int) -> bool:
        """False: a newer run has it."""
        if ticket < self.ticket:
            return False
        self.ticket = ticket
        return True

    def commit(self, epoch: int, ticket: int) -> bool:
        """False: a newer run has claimed the table."""
        if ticket != self.ticket or epoch in self.epochs:
            return False
        self.epochs[epoch] = ticket
        return True


class EpochLedger:
    """All epochs of a world."""

    def __init__(self) -> None:
        self.attempts: dict[AttemptName, EpochAttempt] = {}
        self.tickets: list[tuple[int, float]] = []
        """Those that were answered, with the time of the answer."""
        self.opened: dict[str, list[tuple[UUID, int, float]]] = {}
        """Sink -> (run, ticket, time) of each join that was answered OPEN."""
        self.asked: dict[str, dict[UUID, list[int]]] = {}
        """Sink -> run -> the lowest and the highest ticket that its requests named."""
        self.producers: dict[tuple[int, int], str] = {}
        """(producer id, epoch) -> the participant that it was given to."""
        self.committed: set[EpochName] = set()
        """Those that some request was answered COMMITTED for."""
        self.committed_s: dict[EpochName, float] = {}
        """When the first of these answers came."""
        self.decisions: dict[AttemptName, EpochState] = {}
        """Durable decision records, as the coordinator's log has them."""
        self.tables: dict[str, CommittedTable] = {}
        """By sink, of the queries that prepare."""

    def begin(self, sink: str, epoch: int, ticket: int, run: UUID, now_s: float) -> EpochAttempt:
        """An attempt begins."""
        made = EpochAttempt(sink, epoch, ticket, run, now_s, last_sign_s=now_s)
        self.attempts[made.name] = made
        return made

    def of_value(self, value: bytes) -> tuple[EpochAttempt, str] | None:
        """The attempt and the participant that wrote a record; None for a record of none."""
        prefix = value.partition(b"#")[0].decode()
        parts = prefix.split("/")
        if len(parts) != 4:
            return None
        attempt = self.attempts.get((parts[0], int(parts[1]), int(parts[2])))
        return None if attempt is None else (attempt, prefix)

    def asks(self, attempt: EpochAttempt) -> None:
        """A request about the attempt is sent."""
        runs = self.asked.setdefault(attempt.sink, {})
        known = runs.setdefault(attempt.run, [attempt.ticket, attempt.ticket])
        known[:] = min(known[0], attempt.ticket), max(known[1], attempt.ticket)

    def may_be_fenced(self, attempt: EpochAttempt) -> bool:
        """True when another run may have retired the attempt's run, or has a higher ticket."""
        runs = self.asked.get(attempt.sink, {})
        own = runs.get(attempt.run, [attempt.ticket])
        return any(run != attempt.run and known[1] > own[0] for run, known in runs.items())

    def may_be_overtaken(self, attempt: EpochAttempt) -> bool:
        """True when a request with a higher ticket, of its own run too, may have aborted it."""
        runs = self.asked.get(attempt.sink, {})
        return any(known[1] > attempt.ticket for known in runs.values())

    def must_be_fenced(self, attempt: EpochAttempt) -> bool:
        """True when another run was admitted behind the attempt's own before its commit was asked
        for, or one with a higher ticket."""
        sent_s = attempt.commit_sent_s
        if sent_s is None:
            return False
        opened = [row for row in self.opened.get(attempt.sink, ()) if row[2] < sent_s]
        own = [row for row in opened if row[0] == attempt.run]
        return any(
            run != attempt.run
            and (ticket > attempt.ticket or any(o[1] < ticket and o[2] < at_s for o in own))
            for run, ticket, at_s in opened
        )
