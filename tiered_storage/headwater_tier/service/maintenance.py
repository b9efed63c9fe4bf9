"""Maintenance of the service's tables, in a thread of its own beside the turns.

It looks for lost files, folds small ones, moves log starts (DeleteRecords, retention), deletes
files that no recent version needs, and hints brokers that a table has a new version. It reads and
writes files here; the commits are jobs of the table thread, which never race with those of tiering.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.client.blocking.broker_metadata import BrokerMetadata
from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import HeadwaterError
from headwater_tier.compaction import (
    COMPACT_FILES_MIN,
    HOUR_MS,
    plan_fold,
    replace_files,
    rewrite,
)
from headwater_tier.delta import LogTable, Snapshot
from headwater_tier.log_starts import move_starts_of
from headwater_tier.lost_files import lost_files, lost_files_problem
from headwater_tier.retention import RangeIndex, due_starts
from headwater_tier.service.table_thread import Committed, Opened, TableThread
from headwater_tier.service.topic_finder import TieredTopic
from headwater_tier.table_names import TableLocation
from headwater_tier.typed.vacuum import vacuum_derived
from headwater_tier.vacuum import VACUUM_AGE_DEFAULT_MS, vacuum

logger = logging.getLogger(__name__)

ROUND_S = 5.0
RETENTION_EVERY_S = 300.0
"""As log.retention.check.interval.ms of brokers."""
VACUUM_EVERY_S = 24 * 3600.0
VACUUM_FIRST_S = 3600.0
"""After the start: a service that restarts often must not vacuum each time."""
FILES_EVERY_S = 60.0
"""How often a table's files are listed, to find lost ones."""
PLAN_EVERY_S = 60.0
"""How often folds of few files are planned: those of a quiet topic, and of the day before."""
HINTS_A_ROUND = 32
"""Tables of which brokers are told per round: they read each, which costs more than its commit.
They find the others' new versions at their next look by themselves."""
ASIDE_S = 300.0
"""A topic whose maintenance failed is left alone for so long."""


@dataclass(slots=True)
class _Kept:
    """What maintenance knows of one table."""

    topic: TieredTopic
    snapshot: Snapshot
    index: RangeIndex
    retention_at: float
    vacuum_at: float
    aside_until: float = float("-inf")
    problem: str = ""
    wants_hint: bool = False
    hinted_at: float = float("-inf")
    files_at: float = float("-inf")
    damage: str = ""
    """What is wrong with the table, though tiering goes on."""
    planned_at: float = float("-inf")
    is_folding: bool = False
    """True until the table was read after the commit of a fold."""
    log_starts: dict[int, int] = field(default_factory=dict)


class Maintenance:
    """A `service.Observer`. Its thread runs from `start` to `close`."""

    def __init__(
        self,
        tables: Callable[[], TableThread],
        brokers: BrokerMetadata,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        """`brokers` is this thread's own."""
        self._tables = tables
        self._brokers = brokers
        self._clock = clock
        self._entropy = entropy
        self._lock = threading.Lock()
        self._kept: dict[TableLocation, _Kept] = {}
        self._names: dict[str, TableLocation] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tier-maintenance", daemon=True)
        self.folded_files = 0

    def opened(self, topic: TieredTopic, event: Opened) -> None:
        """Remember the version, in which a fold on its way is over."""
        self._remember(topic, event.location, event.snapshot).is_folding = False

    def committed(self, topic: TieredTopic, event: Committed) -> None:
        """Remember the version, and hint the brokers at it."""
        self._remember(topic, event.location, event.snapshot).wants_hint = True

    def log_starts(self, topic: TieredTopic, starts: dict[int, int]) -> None:
        """Remember the leaders' log starts."""
        with self._lock:
            kept = self._kept.get(topic.location) if topic.location else None
            if kept is not None:
                kept.log_starts = starts

    def dropped(self, location: TableLocation) -> None:
        """Forget the table."""
        with self._lock:
            self._kept.pop(location, None)
            if self._names.get(location.topic) == location:
                del self._names[location.topic]

    def damage(self, topic: str) -> str:
        """What is wrong with a topic's table, though tiering goes on; empty: nothing."""
        with self._lock:
            kept = self._named(topic)
            return "" if kept is None else kept.damage

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End after the table at hand."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._brokers.close()

    def round(self) -> None:
        """Maintain every table once."""
        with self._lock:
            kept_tables = list(self._kept.values())
        now = self._clock.monotonic()
        tables = [kept for kept in kept_tables if now >= kept.aside_until]
        wanting = sorted((k for k in tables if k.wants_hint), key=lambda k: k.hinted_at)
        for kept in wanting[:HINTS_A_ROUND]:
            self._attempt(kept, self._hint)
        for kept in tables:
            self._attempt(kept, self._maintain)

    def _attempt(self, kept: _Kept, job: Callable[[_Kept], None]) -> None:
        """Do a job on a table, unless it is left alone now; if it fails, leave the table alone."""
        if self._stop.is_set() or self._clock.monotonic() < kept.aside_until:
            return  # its hint may have failed just now
        try:
            job(kept)
            kept.problem = ""
        except (HeadwaterError, OSError) as error:
            self._set_aside(kept, error)
        except Exception as error:
            logger.exception("maintenance failed unexpectedly")
            self._set_aside(kept, error)

    def problem(self, topic: str) -> str:
        """Why maintenance of a topic's table waits; empty if it does not. Any thread may call."""
        with self._lock:
            kept = self._named(topic)
            return "" if kept is None else kept.problem

    def _named(self, topic: str) -> _Kept | None:
        at = self._names.get(topic)
        return None if at is None else self._kept.get(at)

    def _set_aside(self, kept: _Kept, error: Exception) -> None:
        kept.aside_until = self._clock.monotonic() + ASIDE_S
        kept.problem = " ".join(str(error).split()) or type(error).__name__
        logger.warning("maintenance of %s waits: %s", kept.topic.topic.name, kept.problem)

    def _remember(self, topic: TieredTopic, location: TableLocation, snapshot: Snapshot) -> _Kept:
        now = self._clock.monotonic()
        with self._lock:
            kept = self._kept.get(location)
            if kept is None:
                index = RangeIndex(location)
                kept = _Kept(topic, snapshot, index, float("-inf"), now + VACUUM_FIRST_S)
                self._kept[location] = kept
                self._names[location.topic] = location
            kept.topic, kept.snapshot = topic, snapshot
            return kept

    def _run(self) -> None:
        while not self._stop.wait(ROUND_S):
            self.round()

    def _hint(self, kept: _Kept) -> None:
        """Tell brokers that there is a new version."""
        kept.wants_hint, kept.hinted_at = False, self._clock.monotonic()
        self._brokers.hint(kept.topic.topic)

    def _maintain(self, kept: _Kept) -> None:
        self._look_for_files(kept)
        if kept.damage:
            return  # a lost file can be neither folded nor read
        self._fold(kept)
        self._retain(kept)
        self._vacuum(kept)

    def _look_for_files(self, kept: _Kept) -> None:
        now, location = self._clock.monotonic(), kept.topic.location
        if location is None or now - kept.files_at < FILES_EVERY_S:
            return
        kept.files_at, snapshot = now, kept.snapshot
        lost = lost_files(location, snapshot.files)
        damage = lost_files_problem(location, snapshot.version, lost)
        if damage and damage != kept.damage:
            logger.warning("%s", damage)
        kept.damage = damage

    def _fold(self, kept: _Kept) -> None:
        snapshot, location = kept.snapshot, kept.topic.location
        if location is None or kept.is_folding:
            return
        now = self._clock.monotonic()
        if len(snapshot.files) < COMPACT_FILES_MIN and now - kept.planned_at < PLAN_EVERY_S:
            return
        kept.planned_at = now
        chosen = plan_fold(snapshot.files, self._clock.now_ms())
        if not chosen:
            return
        facts = rewrite(location, chosen, clock=self._clock, entropy=self._entropy)
        kept.is_folding = True

        def commit(table: LogTable) -> None:
            replace_files(table, chosen, facts, clock=self._clock)
            self.folded_files += len(chosen)

        self._tables().run(location, commit)

    def _retain(self, kept: _Kept) -> None:
        now, location = self._clock.monotonic(), kept.topic.location
        snapshot = kept.snapshot
        if location is None:
            return
        wanted = {p: start for p, start in kept.log_starts.items() if p in snapshot.ends}
        limits = kept.topic.limits
        if now - kept.retention_at >= RETENTION_EVERY_S and not limits.unlimited:
            kept.retention_at = now
            ranges = kept.index.ranges(snapshot)
            due = due_starts(ranges, snapshot.starts, limits, self._clock.now_ms())
            wanted |= {p: max(start, wanted.get(p, 0)) for p, start in due.items()}
        moved = {p: start for p, start in wanted.items() if start > snapshot.starts.get(p, 0)}
        if moved:
            logger.info("log starts of %s move: %s", location.topic, moved)
            kept.wants_hint = True
            self._tables().run(
                location, lambda table: move_starts_of(table, moved, clock=self._clock)
            )

    def _vacuum(self, kept: _Kept) -> None:
        now, location = self._clock.monotonic(), kept.topic.location
        if location is None or now < kept.vacuum_at:
            return
        kept.vacuum_at = now + VACUUM_EVERY_S
        gone = vacuum(location)
        gone += vacuum_derived(location, age_hours=VACUUM_AGE_DEFAULT_MS // HOUR_MS)
        if gone:
            logger.info(
                "%s: %d files deleted that no recent version needs", location.uri, len(gone)
            )
