"""The threads that own the table handles: they open tables, make files durable, commit.

A table's jobs run one after the other, in the order in which they were given, by one thread; so a
turn may be planned from the ends of a commit that is still in the queue. There are some threads as
a commit mostly waits for the disk. A result goes to the queue of the main loop.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headwater.clock import Clock
from headwater.errors import HeadwaterError, UsageError
from headwater_tier.commit import commit_to
from headwater_tier.commit_fence import FileFacts, Outcome
from headwater_tier.data_files import make_durable
from headwater_tier.delta import (
    CommitUnknownError,
    LogTable,
    Snapshot,
    TableAccessError,
    TableStateError,
    table_exists,
)
from headwater_tier.offset_ranges import TierRange
from headwater_tier.service.table_facts import TableFacts, facts_of
from headwater_tier.table_names import TableLocation

logger = logging.getLogger(__name__)

THREADS = 4


@dataclass(frozen=True, slots=True)
class Opened:
    """A table was opened or read again: its ends, and its facts."""

    topic: str
    location: TableLocation
    ends: Mapping[int, int]
    facts: TableFacts
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Committed:
    """A turn is in the table. `since` and `rows` are the turn's."""

    topic: str
    location: TableLocation
    since: float | None
    rows: int
    ends: Mapping[int, int]
    facts: TableFacts
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Failed:
    """A job failed, or another tierer committed first (`is_discarded`). What the main loop planned
    for this topic is void."""

    topic: str
    location: TableLocation
    error: Exception
    since: float | None = None
    is_discarded: bool = False
    ends: Mapping[int, int] | None = None
    """The table's ends nevertheless, where only its state is refused."""


Event = Opened | Committed | Failed


@dataclass(frozen=True, slots=True)
class Turn:
    """Planned ranges and the files that were written for them."""

    ranges: Sequence[TierRange]
    files: Sequence[FileFacts]
    since: float | None


class OvertakenError(HeadwaterError):
    """Another tierer committed these ranges first; the next turn plans from its commit."""


Job = Callable[[], Event | None]
Jobs = queue.SimpleQueue[Job | None]


class TableThread:
    """Runs jobs on tables; `events` receives what came of them."""

    def __init__(
        self, clock: Clock, events: queue.SimpleQueue[Event], threads: int = THREADS
    ) -> None:
        """With one thread, jobs of different tables keep their order, too."""
        self._clock = clock
        self._events = events
        self._jobs: list[Jobs] = [queue.SimpleQueue() for _ in range(threads)]
        self._tables: dict[TableLocation, LogTable] = {}
        """Each is used by its own thread alone."""
        self._threads = [
            threading.Thread(target=self._run, args=(jobs,), name=f"tier-tables-{at}", daemon=True)
            for at, jobs in enumerate(self._jobs)
        ]
        for thread in self._threads:
            thread.start()

    def open(self, location: TableLocation, partitions: int) -> None:
        """Open or create a table, or read its newest version."""
        self._put(location, None, lambda: self._opened(location, partitions))

    def commit(self, location: TableLocation, turn: Turn) -> None:
        """Make a turn's files durable, and commit them with the ranges' ends."""
        self._put(location, turn.since, lambda: self._committed(location, turn))

    def run(self, location: TableLocation, job: Callable[[LogTable], object]) -> None:
        """Run a maintenance job on an open table; afterwards its facts are reported as Opened."""

        def maintained() -> Event:
            table = self._table(location)
            try:
                job(table)
            except (CommitUnknownError, UsageError) as error:
                # Another commit was first: the next round of maintenance decides again.
                logger.info("maintenance of %s is tried again later: %s", location.topic, error)
                table.reopen()
            table.refresh()
            return self._report(table)

        self._put(location, None, maintained)

    def forget(self, location: TableLocation) -> None:
        """Drop a table's handle: the topic is gone, or another service has it."""
        self._jobs_of(location).put(lambda: self._dropped(location))

    def close(self) -> None:
        """Finish every job, then end the threads."""
        for jobs in self._jobs:
            jobs.put(None)
        for thread in self._threads:
            thread.join()

    def thread_of(self, location: TableLocation) -> int:
        """Which of the threads has this table."""
        return hash(location) % len(self._jobs)

    def _jobs_of(self, location: TableLocation) -> Jobs:
        return self._jobs[self.thread_of(location)]

    def _put(self, location: TableLocation, since: float | None, job: Callable[[], Event]) -> None:
        def guarded() -> Event:
            try:
                return job()
            except BaseException as error:  # noqa: BLE001 - deltalake's panics are no Exceptions
                self._tables.pop(location, None)
                is_discarded = isinstance(error, OvertakenError)
                ends = _refused_ends(location) if isinstance(error, TableStateError) else None
                return Failed(location.topic, location, _expected(error), since, is_discarded, ends)

        self._jobs_of(location).put(guarded)

    def _run(self, jobs: Jobs) -> None:
        while (job := jobs.get()) is not None:
            event = job()
            if event is not None:
                self._events.put(event)

    def _dropped(self, location: TableLocation) -> None:
        self._tables.pop(location, None)

    def _table(self, location: TableLocation) -> LogTable:
        table = self._tables.get(location)
        if table is None:
            table = self._tables[location] = LogTable(location)
        return table

    def _opened(self, location: TableLocation, partitions: int) -> Event:
        table = self._tables.get(location)
        if table is None:
            table = self._tables[location] = LogTable.create(location, partitions)
        else:
            if not table_exists(location):
                raise TableAccessError(
                    f"the log table {location.uri} was removed: its history is lost. A new one "
                    "begins with what brokers still have."
                )
            table.refresh()
        return self._report(table)

    def _report(self, table: LogTable) -> Opened:
        at, snapshot = table.location, table.snapshot
        return Opened(at.topic, at, dict(snapshot.ends), facts_of(snapshot), snapshot)

    def _committed(self, location: TableLocation, turn: Turn) -> Event:
        make_durable(location, [facts.path for facts in turn.files])
        table = self._table(location)
        result = commit_to(table, turn.ranges, turn.files, clock=self._clock)
        if result.outcome is not Outcome.DONE:
            raise OvertakenError(f"another tierer of {location.topic} was first: {result.detail}")
        rows = sum(facts.rows for facts in turn.files)
        snapshot = table.snapshot
        return Committed(
            location.topic,
            location,
            turn.since,
            rows,
            dict(result.ends),
            facts_of(snapshot),
            snapshot,
        )


def _refused_ends(location: TableLocation) -> Mapping[int, int] | None:
    """The ends of a table that a foreign commit changed, for its status; None if it cannot be
    read."""
    try:
        return dict(LogTable(location, checked=False).snapshot.ends)
    except (HeadwaterError, OSError) as error:
        logger.info("the ends of %s are not known: %s", location.uri, error)
        return None


def _expected(error: BaseException) -> Exception:
    """The error, with its kind where it is none that Headwater raises."""
    if isinstance(error, HeadwaterError | OSError):
        return error
    logger.error("a job on a table failed unexpectedly", exc_info=error)
    return HeadwaterError(f"{type(error).__name__}: {error}")
