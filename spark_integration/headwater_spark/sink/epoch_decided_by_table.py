"""An epoch whose decision is a commit of a table: topics and table agree after any crash. Pure.
The epochs of the plain sink are decided by the coordinator: `epoch_task`, `repeated_batches`.

One attempt at an epoch has a ticket and takes these steps:

1. rows to the topics, as participants of the epoch, all acknowledged;
2. PrepareEpoch: one record, after which the epoch has no timeout and waits for its decision;
3. the table's commit, which carries the ticket: it decides;
4. CommitEpoch.

A crash before 2 aborts the epoch. After 2 the next attempt finds the epoch prepared and settles it
first: it commits a fence to the table, which carries the new attempt's ticket and makes every write
of a lower ticket impossible; then it asks the table's history whether the prepared ticket has
written, and commits or aborts the epoch. Without the fence, the driver of the earlier attempt could
still be between steps 2 and 3, and its commit would follow the abort.

Tickets, not epochs, are compared in the table: two attempts at one epoch must be told apart.

A table decides only while it is the one that has the earlier epochs. One that is not there (a
storage that is not mounted, a typing error) or is older (a restored copy) would have every prepared
epoch aborted that the real table has. So both are refused before anything is settled, and before
rows go to a table that lacks their predecessors. The first epoch of a run is held against the
table's history, which costs a job; a later one looks for the commit of the epoch before, which no
other table has and no older copy, before it is prepared and while it can still be aborted.

Step 4 has a time limit. Once the table has decided, nothing is lost by giving up: the epoch stays
prepared, or is committed without our knowing, and the next attempt settles it. Without the limit, a
query whose brokers are gone could not be stopped.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol
from uuid import UUID

from headwater.client.blocking.epoch_client import EpochWriter, Participant, SinkFencedError
from headwater.client.epoch_errors import EpochError
from headwater.client.sink_values import SinkDescription, SinkEpoch
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.wire.epoch_values import EpochState, EpochStatus

logger = logging.getLogger(__name__)


class Verdict(Enum):
    """Whether a ticket that a fence has passed wrote to the table. It never changes again."""

    WRITTEN = "written"
    ABSENT = "absent"
    UNKNOWN = "unknown"
    """The table's history does not reach back far enough."""


NO_EPOCH = -1
NO_RUN = UUID(int=0)


@dataclass(frozen=True, slots=True)
class TableCommit:
    """A sink's commit in the table. Another table, or an older copy, does not have it."""

    version: int
    metadata: str
    """Its user metadata, which names sink, epoch and ticket."""


class DecisionTable(Protocol):
    """The table whose commits decide."""

    name: str
    """Its path, or its name in the catalog."""

    def exists(self) -> bool:
        """Whether the table is there."""

    @property
    def written(self) -> TableCommit | None:
        """The commit of the last `write`; None if it made none."""

    def has(self, commit: TableCommit) -> bool:
        """Whether the table has an earlier commit. Raises DisagreementError if the table was there
        and is not any more."""

    def fence(self, ticket: int) -> bool:
        """Make every write of a lower ticket impossible; False: a later ticket is there already."""

    def verdict(self, epoch: SinkEpoch) -> Verdict:
        """Whether a prepared epoch's ticket, below a fence, has written."""

    def last_epoch(self) -> int | None:
        """The last epoch of the sink in the table; NO_EPOCH: it has none. None: its history does
        not reach back far enough to tell."""


class EpochCalls(Protocol):
    """The calls of `EpochClient` that are used here."""

    def allocate_ticket(self) -> int:
        """A ticket higher than every one before it."""

    def describe(self, sink: str) -> SinkDescription | None:
        """The sink's state."""

    def prepare(self, writer: EpochWriter, participants: Sequence[Participant]) -> None:
        """Make the epoch durable without deciding it."""

    def commit(
        self, writer: EpochWriter, participants: Sequence[Participant], *, is_prepared: bool = False
    ) -> bool:
        """Commit the epoch."""

    def abort(self, writer: EpochWriter, *, is_prepared: bool = False) -> EpochStatus:
        """Abort the epoch."""


class UndecidedEpochError(HeadwaterError):
    """A prepared epoch whose decision the table does not show any more."""


class PendingCommitError(HeadwaterError):
    """The table has the epoch, and the brokers did not confirm the commit of its topics in time.
    The next attempt, of any run, commits it."""


class DisagreementError(HeadwaterError):
    """Topics and table have different epochs, which no crash can cause: an epoch was decided by
    hand, or the table is another one."""


@dataclass(frozen=True, slots=True)
class TopicRows:
    """The rows of an epoch in topics: acknowledged, and not committed."""

    participants: tuple[Participant, ...]
    is_committed: bool
    """The epoch was committed before, so nothing was written."""


class DecidedEpoch:
    """One attempt at an epoch."""

    def __init__(
        self,
        calls: EpochCalls,
        table: DecisionTable,
        writer: EpochWriter,
        abort: Callable[[EpochWriter], object] | None = None,
        known: TableCommit | None = None,
    ) -> None:
        """The ticket of `writer` is replaced by a new one. `abort` takes back what is not prepared
        yet: AbortEpoch, with a short time limit; by default with that of `calls`. `known`: the
        commit of the epoch before, if it is of the same run."""
        self.written: TableCommit | None = None
        """This epoch's commit, once both sides have it; None also if an earlier attempt made it."""
        self._known = known
        self._calls = calls
        self._table = table
        self._abort: Callable[[EpochWriter], object] = abort or calls.abort
        self._writer = replace(writer, ticket=calls.allocate_ticket())

    def settle_earlier(self) -> bool:
        """Settle what earlier attempts left prepared; True: this epoch is committed already.

        The first epoch of a run, as every replay is, and the first one after a takeover also hold
        the table's history against the coordinator. Raises DisagreementError, when nothing is
        settled yet, if the table is not there although the sink has epochs.
        """
        sink, own = self._calls.describe(self._writer.sink), self._writer.epoch
        if sink is not None and sink.owner not in ("", self._writer.owner):
            return False  # the first join raises SinkOwnedError
        last, prepared = _last_epoch(sink), _prepared(sink)
        is_taken_over = sink is not None and sink.run == NO_RUN
        if is_taken_over:
            self._known = None  # the operator may have changed the table, too
        if (prepared or last > NO_EPOCH) and not self._table.exists():
            raise self._no_table(last, prepared)
        if prepared:
            self._check_age(last, self._table.last_epoch())
            last = max([last, *self._settle()])
        if self._known is None:
            self._compare(last, is_taken_over=is_taken_over)
        return last == own

    def _check_same(self) -> None:
        """Raises DisagreementError when the table is not the one of the epoch before."""
        known = self._known
        if known is None or self._table.has(known):
            return
        last = _last_epoch(self._calls.describe(self._writer.sink))
        self._check_age(last, self._table.last_epoch())
        raise DisagreementError(
            f"{self._writer}: table {self._table.name} was replaced in the middle of the run: its"
            f" version {known.version} is not the commit of the epoch before any more. Nothing of"
            " this epoch is written. Give exactly_once the table that has it. If it was replaced on"
            " purpose, start the query again: it goes on if the table's history has its epochs"
        )

    def _compare(self, last: int, *, is_taken_over: bool) -> None:
        """Raises DisagreementError when somebody decided this epoch by hand, and otherwise than
        the table, or when the table is an older one; `last` is the sink's last epoch. Another run
        may have moved both meanwhile. `is_taken_over`: an operator has set `last`, and no run has
        joined since."""
        shown, writer = self._table.last_epoch(), self._writer
        if last < writer.epoch == shown and not (is_taken_over or self._is_decided()):
            raise DisagreementError(
                f"{writer} is in the table, and neither prepared nor committed at the brokers: it"
                f" was aborted, or its sink deleted, by hand. {self._takeover(writer.epoch)} goes"
                f" on without its rows in the topics, and {self._takeover(writer.epoch - 1)} writes"
                " it to both, and a second time to the table"
            )
        if last == writer.epoch and shown == last - 1:
            raise DisagreementError(
                f"{writer} is committed in its topics, and the table does not have it: it was"
                f" committed by hand, or {self._table.name} is an older copy of the table."
                f" {self._takeover(last - 1)} writes it to both, and a second time to the topics"
            )
        self._check_age(last, shown)

    def _check_age(self, last: int, shown: int | None) -> None:
        """Raises DisagreementError when the table, whose last epoch is `shown`, lacks the sink's
        last one. Each is in the table before it is committed at the brokers."""
        writer = self._writer
        if shown is None or shown >= last:
            return
        has = "no epoch" if shown == NO_EPOCH else f"epochs up to {shown}"
        again = f", and writes epoch {last} to the topics a second time"
        raise DisagreementError(
            f"{writer}: epochs up to {last} of the sink are committed, and table"
            f" {self._table.name} has {has} of it, so it is another table, or an older copy. Give"
            " exactly_once the table that has them. If the others are to be left out of this one"
            f" for good, {self._takeover(shown)} lets the query go on with it"
            f"{again if last == writer.epoch else ''}"
        )

    def _no_table(self, last: int, prepared: list[SinkEpoch]) -> DisagreementError:
        sink, table = self._writer.sink, self._table.name
        if prepared:
            epoch = prepared[0].epoch
            return DisagreementError(
                f"epoch {epoch} of sink {sink!r} is prepared, and table {table}, whose commit"
                " decides about it, does not exist: is its storage mounted, and the name right?"
                " Nothing is decided yet: start the query again when the table is there. If it is"
                f" gone for good, headwater sinks commit {sink} {epoch} --execute keeps the"
                f" epoch's rows in the topics, and headwater sinks abort {sink} {epoch} --execute"
                " drops them"
            )
        return DisagreementError(
            f"epochs up to {last} of sink {sink!r} are committed, and table {table}, which has"
            " them, does not exist: is its storage mounted, and the name right? If it is gone for"
            f" good, {self._takeover(NO_EPOCH)} begins a new one"
        )

    def _takeover(self, last: int) -> str:
        """The command that makes `last` the sink's last epoch."""
        sink, owner = self._writer.sink, self._writer.owner
        return f"headwater sinks takeover {sink} --owner {owner} --last-epoch {last} --execute"

    def _is_decided(self) -> bool:
        """Whether the epoch, or a later one, is prepared or committed at the coordinator."""
        sink = self._calls.describe(self._writer.sink)
        return bool(_prepared(sink)) or _last_epoch(sink) >= self._writer.epoch

    def run(
        self,
        write_topics: Callable[[EpochWriter], TopicRows],
        write_table: Callable[[EpochWriter], bool],
    ) -> None:
        """Write topics and table, and commit both. Raises when neither has the epoch's rows, or
        when the next attempt must settle the epoch (PendingCommitError: the table has it).

        `write_table` returns False when the table passed over the write, because a fence or a
        write of a later ticket is in it.
        """
        try:
            rows = write_topics(self._writer)
            if rows.is_committed:
                return
            self._check_same()
            self._calls.prepare(self._writer, rows.participants)
        except BaseException:
            self._abandon()
            raise
        try:
            is_written = write_table(self._writer)
        except DisagreementError:
            raise  # without its table nothing can be settled: the epoch stays prepared
        except Exception as error:
            # A commit that failed may stand in the table all the same.
            if self._writer.epoch not in self._settle():
                raise
            logger.warning(
                "%s is in the table although its write raised an error: %s", self._writer, error
            )
            return
        if not is_written:
            raise self._fenced()
        self._commit(self._writer)
        self.written = self._table.written

    def _commit(self, writer: EpochWriter) -> None:
        """Commit what the table has decided. Raises PendingCommitError, and DisagreementError when
        the sink was deleted meanwhile."""
        try:
            self._calls.commit(writer, (), is_prepared=True)
        except EpochError:
            raise
        except (OSError, HeadwaterError) as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.RESOURCE_NOT_FOUND:
                raise DisagreementError(
                    f"{writer} is in the table, and the brokers do not know its sink any more: it"
                    f" was deleted by hand ({error}). {self._takeover(writer.epoch)} goes on"
                    f" without its rows in the topics, and {self._takeover(writer.epoch - 1)}"
                    " writes it to both, and a second time to the table"
                ) from error
            raise PendingCommitError(
                f"{writer} is decided, as the table has its rows, but the brokers did not confirm"
                f" its commit in the topics: {error}. Nothing is lost, and nothing has to be"
                " undone: once the brokers answer, start the query again with the same checkpoint."
                " It first commits the epoch, and does not write it again; until then"
                " read_committed readers of its topics wait behind it. headwater.retry.timeout.ms"
                " in the options sits out longer outages"
            ) from error

    def _abandon(self) -> None:
        """Abort before the table was written. Best effort: an open epoch has a deadline, and one
        that was prepared although the request failed is settled by the next attempt."""
        try:
            self._abort(self._writer)
        except (OSError, HeadwaterError) as error:
            logger.warning("%s is not aborted yet: %s", self._writer, error)

    def _settle(self) -> list[int]:
        """Commit or abort every prepared epoch as the table says; those that are committed now."""
        fence = self._calls.allocate_ticket()
        if not self._table.fence(fence):
            raise self._fenced()
        # Only now: what is prepared after the fence by a lower ticket can't be written any more.
        sink = self._calls.describe(self._writer.sink)
        committed = []
        for epoch in _prepared(sink):
            if epoch.ticket > fence:
                raise self._fenced()
            if self._decide(epoch, replace(self._writer, epoch=epoch.epoch, ticket=fence)):
                committed.append(epoch.epoch)
        if sink is not None and sink.last_epoch is not None:
            committed.append(sink.last_epoch)
        self._writer = replace(self._writer, ticket=self._calls.allocate_ticket())
        return committed

    def _decide(self, epoch: SinkEpoch, writer: EpochWriter) -> bool:
        verdict = self._table.verdict(epoch)
        logger.warning(
            "%s was prepared by ticket %d, and is %s in the table", writer, epoch.ticket,
            verdict.value,
        )  # fmt: skip
        if verdict is Verdict.UNKNOWN:
            raise UndecidedEpochError(
                f"{writer} is prepared by ticket {epoch.ticket}, and the table's history does not"
                " reach back far enough to show whether the table has its rows: look into the"
                f" table, and run headwater sinks commit {writer.sink} {writer.epoch} --execute if"
                f" they are there, headwater sinks abort {writer.sink} {writer.epoch} --execute if"
                " not"
            )
        if verdict is Verdict.WRITTEN:
            self._commit(writer)
            return True
        status = self._calls.abort(writer, is_prepared=True)
        if status is not EpochStatus.ABORTED:
            raise self._fenced()  # a newer run has settled it, and perhaps written the epoch too
        return False

    def _fenced(self) -> SinkFencedError:
        writer = self._writer
        return SinkFencedError(
            writer.sink,
            writer.epoch,
            f"{writer}: a newer run writes this sink and its table (this one has ticket"
            f" {writer.ticket}), so this run stops, and nothing of it is read. If no other run"
            " exists, the brokers' data was replaced and tickets began again: give exactly_once"
            " another sink_id",
        )


def _last_epoch(sink: SinkDescription | None) -> int:
    return NO_EPOCH if sink is None or sink.last_epoch is None else sink.last_epoch


def _prepared(sink: SinkDescription | None) -> list[SinkEpoch]:
    epochs = () if sink is None else sink.epochs
    return [epoch for epoch in epochs if epoch.state == EpochState.PREPARED.label]
