"""Doubles of a sink's coordinator and of its Delta table: the rules that `DecidedEpoch` needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from headwater.client.blocking.epoch_client import EpochWriter, Participant
from headwater.client.epoch_errors import refusal
from headwater.client.sink_values import SinkDescription, SinkEpoch
from headwater.wire.epoch_values import EpochState, EpochStatus
from headwater_spark.sink.epoch_decided_by_table import (
    NO_EPOCH,
    DecidedEpoch,
    TableCommit,
    TopicRows,
    Verdict,
)

SINK, OWNER = "sink", "query"
Rows = list[tuple[int, int]]
"""(epoch, ticket) of each write that counts."""


@dataclass
class FakeCoordinator:
    """One sink as its coordinator keeps it. Open epochs are those joined and undecided."""

    ticket: int = 0
    highest: int = 0
    run: UUID = UUID(int=1)
    """Zero after a takeover, until somebody joins."""
    last_epoch: int | None = None
    is_known: bool = False
    open: set[tuple[int, int]] = field(default_factory=set)
    prepared: tuple[int, int] | None = None
    rows: Rows = field(default_factory=list)
    """What a read_committed reader sees."""
    now_ms: int = 10**9

    def allocate_ticket(self) -> int:
        self.ticket += 1
        return self.ticket

    def describe(self, _sink: str) -> SinkDescription | None:
        if not self.is_known:
            return None
        prepared = () if self.prepared is None else (self._described(*self.prepared),)
        return SinkDescription(
            SINK,
            OWNER,
            "query",
            self.run,
            self.highest,
            self.last_epoch,
            None,
            0,
            0,
            0,
            prepared,
        )

    def _described(self, epoch: int, ticket: int) -> SinkEpoch:
        state = EpochState.PREPARED.label
        return SinkEpoch(epoch, UUID(int=ticket), ticket, state, self.now_ms, None, ())

    def _refusal(self, writer: EpochWriter) -> EpochStatus | None:
        if self.last_epoch is not None and writer.epoch == self.last_epoch:
            return EpochStatus.COMMITTED
        if writer.ticket < self.highest:
            return EpochStatus.FENCED
        if self.last_epoch is not None and writer.epoch < self.last_epoch:
            return EpochStatus.CHECKPOINT_MISMATCH
        return None if self.prepared is None else EpochStatus.PREPARED

    def _admit(self, writer: EpochWriter) -> None:
        self.is_known = True
        self.run = writer.run
        if writer.ticket > self.highest:
            self.highest = writer.ticket
            self.open.clear()

    def join(self, writer: EpochWriter) -> bool:
        """False: the epoch is committed."""
        status = self._refusal(writer)
        if status is EpochStatus.COMMITTED:
            return False
        if status is not None:
            raise _error(writer, status)
        self._admit(writer)
        self.open.add((writer.epoch, writer.ticket))
        return True

    def prepare(self, writer: EpochWriter, participants: Sequence[Participant]) -> None:
        key = (writer.epoch, writer.ticket)
        if self.prepared == key and writer.ticket == self.highest:
            return
        status = self._refusal(writer)
        if status is None and participants and key not in self.open:
            status = EpochStatus.ABORTED
        if status is not None:
            raise _error(writer, status)
        self._admit(writer)
        self.open.discard(key)
        self.prepared = key

    def commit(
        self,
        writer: EpochWriter,
        _participants: Sequence[Participant],
        *,
        is_prepared: bool = False,
    ) -> bool:
        assert is_prepared
        status = self._resolve(writer)
        if status is EpochStatus.ABORTED and self.prepared is not None:
            self.rows.append(self.prepared)
            self.last_epoch, self.prepared = writer.epoch, None
        elif status is not EpochStatus.COMMITTED:
            raise _error(writer, status)
        return True

    def abort(self, writer: EpochWriter, *, is_prepared: bool = False) -> EpochStatus:
        if is_prepared:
            status = self._resolve(writer)
            if status is EpochStatus.ABORTED:
                self.prepared = None
            return status
        status = self._refusal(writer) or EpochStatus.ABORTED
        if status is EpochStatus.ABORTED:
            self._admit(writer)
            self.open.discard((writer.epoch, writer.ticket))
        return status

    def _resolve(self, writer: EpochWriter) -> EpochStatus:
        """ABORTED: the prepared epoch may be decided by this writer, or none is prepared."""
        if self.prepared is None or self.prepared[0] != writer.epoch:
            return self._refusal(writer) or EpochStatus.ABORTED
        if writer.ticket < self.highest:
            return EpochStatus.FENCED
        self._admit(writer)
        return EpochStatus.ABORTED

    def take_over(self, last_epoch: int) -> None:
        """As `headwater sinks takeover --last-epoch` does."""
        self.last_epoch, self.run = last_epoch, UUID(int=0)


@dataclass
class FakeTable:
    """A Delta table: app transactions of one sink, and a history."""

    version: int = 0
    """Of the sink's application transaction."""
    rows: Rows = field(default_factory=list)
    """The oldest commit first."""
    is_history_gone: bool = False
    is_there: bool = True
    name: str = "/tables/silver"
    written: TableCommit | None = None

    def has(self, commit: TableCommit) -> bool:
        return commit.metadata in map(str, self.rows)

    def exists(self) -> bool:
        return self.is_there

    def write(self, writer: EpochWriter) -> bool:
        assert self.is_there
        if self.version >= writer.ticket:
            return False
        self.version = writer.ticket
        self.rows.append((writer.epoch, writer.ticket))
        self.written = TableCommit(len(self.rows), str(self.rows[-1]))
        return True

    def fence(self, ticket: int) -> bool:
        assert self.is_there
        if self.version >= ticket:
            return False
        self.version = ticket
        return True

    def verdict(self, epoch: SinkEpoch) -> Verdict:
        if self.is_history_gone:
            return Verdict.UNKNOWN
        is_written = (epoch.epoch, epoch.ticket) in self.rows
        return Verdict.WRITTEN if is_written else Verdict.ABSENT

    def last_epoch(self) -> int | None:
        if self.is_history_gone:
            return None
        return self.rows[-1][0] if self.rows else NO_EPOCH


class CrashError(BaseException):
    """The driver died."""


Hook = Callable[[str], None]


def nothing(_step: str) -> None:
    """No hook."""


@dataclass
class World:
    """A coordinator, a table, and attempts that a hook may stop before and after each call."""

    coordinator: FakeCoordinator = field(default_factory=FakeCoordinator)
    table: FakeTable = field(default_factory=FakeTable)
    written: dict[int, TableCommit | None] = field(default_factory=dict)
    """The last commit of each run."""

    def attempt(
        self,
        epoch: int,
        run: int,
        hook: Hook = nothing,
        *,
        has_topics: bool = True,
        goes_on: bool = False,
    ) -> None:
        """One attempt; `hook` gets the name of every step, with "before" or "after". `goes_on`: it
        is not the run's first epoch."""
        calls = Hooked(self.coordinator, hook)
        table = Hooked(self.table, hook)
        writer = EpochWriter(SINK, OWNER, UUID(int=run), 0, epoch)
        known = self.written[run] if goes_on else None
        one = DecidedEpoch(calls, table, writer, known=known)  # type: ignore[arg-type]

        def write_topics(at: EpochWriter) -> TopicRows:
            if not has_topics:
                return TopicRows((), is_committed=False)
            if not calls.join(at):
                return TopicRows((), is_committed=True)
            hook("flush")
            return TopicRows((Participant(0, 0, 1, 0, "id", 1.0),), is_committed=False)

        if not one.settle_earlier():
            one.run(write_topics, table.write)
        self.written[run] = one.written

    def check(self) -> None:
        """Topics and table have the same attempts, each epoch once."""
        assert self.coordinator.rows == self.table.rows
        epochs = [epoch for epoch, _ in self.table.rows]
        assert epochs == sorted(set(epochs))


class Hooked:
    """The calls of a double, with a hook before and after each, and its other attributes."""

    def __init__(self, target: object, hook: Hook) -> None:
        self._target = target
        self._hook = hook

    def __getattr__(self, name: str) -> object:
        call = getattr(self._target, name)
        if not callable(call):
            return call

        def hooked(*args: object, **options: object) -> object:
            self._hook(f"before {name}")
            result = call(*args, **options)
            self._hook(f"after {name}")
            return result

        return hooked


def _error(writer: EpochWriter, status: EpochStatus) -> Exception:
    return refusal(status, sink=SINK, epoch=writer.epoch, owner=OWNER, last_epoch=-1, detail="")
