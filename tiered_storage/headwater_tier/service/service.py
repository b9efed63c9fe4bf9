"""`TieringService`: tiers every topic that asks for it, one turn after the other.

The main loop finds topics, asks for log ends, and gives the topic with the earliest deadline a
turn: the turn's files are written, and its commit goes to the table thread while the next turn is
planned. The table of a topic that was never seen before is opened, or created, when its turn comes:
of a thousand new topics the first one's records are committed before the last one's table exists.
The fence in the table makes this safe, whoever else tiers the topic; membership of a group only
saves work. A failure of one topic stops that topic, with a back-off, and no other.
"""

from __future__ import annotations

import logging
import queue
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Protocol

from headwater.client.blocking.broker_metadata import BrokerMetadata, Topic
from headwater.client.blocking.record_client import EARLIEST, LATEST
from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater_tier.service.file_writers import FileWriters
from headwater_tier.service.schedule import TURN_BYTES, Schedule
from headwater_tier.service.table_thread import Committed, Event, Failed, Opened, TableThread, Turn
from headwater_tier.service.topic_finder import TieredTopic, TopicFinder
from headwater_tier.service.topic_state import TopicState
from headwater_tier.table_names import TableLocation

logger = logging.getLogger(__name__)

FIND_EVERY_S = 5.0
STARTS_EVERY_S = 60.0
REREAD_EVERY_S = 60.0
"""How often a table without commits is read again: a foreign change is found within this time."""
SHARE_EVERY_S = 0.2
"""How often the group is asked which topics are this service's."""
PAUSE_S_MAX = 0.5
COMMIT_QUEUE_MAX = 4
"""Commits that wait for one of the table threads: a commit that hangs stops no other thread's."""
OPENINGS_MAX = 5
"""Tables that wait for the table threads to open, create or read them: commits wait for few. One
place is always left for tables that are due, and one for those that are read again."""
TURNS_A_STEP = 8
"""Turns after one look at all topics' deadlines."""
STEP_S = 0.2
"""After so long no further turn begins in a step: a flood must not keep the loop from the rest."""


class Share(Protocol):
    """Which of the topics are this service's (`membership`)."""

    def mine(self, topics: Iterable[str]) -> set[str]:
        """The topics that this service tiers now, out of those that there are."""
        ...


class Observer(Protocol):
    """What follows a commit: maintenance, reports, derived tables. Any call returns at once."""

    def opened(self, topic: TieredTopic, event: Opened) -> None:
        """A table was read."""
        ...

    def committed(self, topic: TieredTopic, event: Committed) -> None:
        """A turn is in the table."""
        ...

    def log_starts(self, topic: TieredTopic, starts: dict[int, int]) -> None:
        """The leaders' log starts, as DeleteRecords may have moved them."""
        ...

    def dropped(self, location: TableLocation) -> None:
        """The topic is gone, or another service tiers it from now on."""
        ...


class TieringService:
    """The main loop. `step` runs once; `run` until `stop`."""

    def __init__(
        self,
        finder: TopicFinder,
        brokers: BrokerMetadata,
        writers: FileWriters,
        clock: Clock,
        share: Share,
        observers: tuple[Observer, ...] = (),
        admits: Callable[[Topic], bool] = lambda _topic: True,
    ) -> None:
        """A topic is tiered once it is admitted: when the catalog has its row."""
        self._admits = admits
        self.schedule = Schedule()
        self.topics: dict[str, TopicState] = {}
        self.unlocated: dict[str, TieredTopic] = {}
        """Topics without a folder for their table."""
        self.problem = ""
        """Why the topics cannot be found now; empty if they can."""
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.tables = TableThread(clock, self._events)
        self._finder = finder
        self._brokers = brokers
        self._writers = writers
        self._clock = clock
        self._share = share
        self._observers = observers
        self._found_at = float("-inf")
        self._shared_at = float("-inf")
        self._found: dict[str, TieredTopic] = {}

    def step(self, pause_s_max: float = PAUSE_S_MAX) -> None:
        """Take in what the table thread has done, look, give one topic its turn; else pause."""
        while not self._events.empty():
            self._take(self._events.get())
        now = self._clock.monotonic()
        if now - self._found_at >= FIND_EVERY_S:
            self._find(now)
        if now - self._shared_at >= SHARE_EVERY_S:
            self._shared_at = now
            self._share_out()
        self._look(self.schedule.to_look_at(now), now)
        busy = {s.name for s in self.topics.values() if s.is_busy}
        due = self.schedule.due(self._clock.monotonic(), busy)
        has_begun = bool(due) and self._take_turns(self._first_of(due))
        self._read_again(now)
        if due:
            if not has_begun:
                self._wait(pause_s_max)  # the table threads have enough to do, and say when not
            return
        self._open_more(now)
        self._wait(self.schedule.pause_s(self._clock.monotonic(), pause_s_max, busy))

    def close(self) -> None:
        """Finish the commits on their way, then end the threads."""
        self.tables.close()
        while not self._events.empty():
            self._take(self._events.get())
        self._writers.close()

    def _wait(self, pause_s: float) -> None:
        try:
            self._take(self._events.get(timeout=max(0.001, pause_s)))
        except queue.Empty:
            return

    # -- topics

    def _find(self, now: float) -> None:
        self._found_at = now
        try:
            self._found = self._finder.find()
        except (HeadwaterError, OSError) as error:
            if not self.problem:
                logger.warning("the topics cannot be found now: %s", error)
            self.problem = " ".join(str(error).split())
            return
        self.problem = ""

    def _share_out(self) -> None:
        """Follow the topics that are this service's now."""
        mine = {
            name
            for name in self._share.mine(self._found)
            if name in self.topics or self._admits(self._found[name].topic)
        }
        self.unlocated = {n: t for n, t in self._found.items() if t.location is None and n in mine}
        wanted = {n: t for n, t in self._found.items() if t.location is not None and n in mine}
        for name, state in list(self.topics.items()):
            topic = wanted.get(name)
            if topic is None or topic.location != state.location:
                if topic is not None:
                    _say_replaced(state, topic)
                del self.topics[name]
                self.schedule.topics.pop(name, None)
                self.tables.forget(state.location)
                for observer in self._observers:
                    observer.dropped(state.location)
        for name, topic in wanted.items():
            known = self.topics.get(name)
            if known is None:
                assert topic.location is not None
                self.topics[name] = TopicState(topic, topic.location)
                logger.info("%s is tiered into %s", name, topic.location.uri)
            else:
                known.settings = topic
        self.schedule.follow({n: t.interval_s for n, t in wanted.items()})

    # -- tables

    def _open(self, state: TopicState) -> None:
        state.is_opening = True
        self.tables.open(state.location, state.settings.topic.partitions)

    def _room(self, *, again: bool) -> int:
        """How many tables may be opened; with `again` those that are open, to read them again."""
        opening = [s.planned is not None for s in self.topics.values() if s.is_opening]
        return min(OPENINGS_MAX - len(opening), OPENINGS_MAX - 1 - opening.count(again))

    def _read_again(self, now: float) -> None:
        """Read tables without commits again, those that were read longest ago first."""
        quiet = [
            state
            for state in self.topics.values()
            if state.planned is not None
            and not state.is_opening
            and not state.in_flight
            and now - state.opened_at >= REREAD_EVERY_S
        ]
        room = max(0, self._room(again=True))
        for state in sorted(quiet, key=lambda s: s.opened_at)[:room]:
            self._open(state)

    def _open_more(self, now: float) -> None:
        """While no turn is due: open tables of topics that have not had one, and failed ones."""
        room = self._room(again=False)
        for state in self.topics.values():
            if room <= 0:
                return
            is_closed = state.planned is None and not state.is_busy
            if is_closed and now >= self.schedule.topics[state.name].retry_at:
                self._open(state)
                room -= 1

    # -- log ends

    def _look(self, names: Iterable[str], now: float) -> None:
        """Ask for the log ends of these topics, all in one request per leader."""
        states = [self.topics[name] for name in names]
        if not states:
            return
        try:
            self._ask(states, now)
        except (HeadwaterError, OSError) as error:
            if len(states) == 1:
                self._fail(states[0], error)
                return
            for state in states:  # one by one: a topic without a leader hides no other
                try:
                    self._ask([state], now)
                except (HeadwaterError, OSError) as own:
                    self._fail(state, own)

    def _ask(self, states: list[TopicState], now: float) -> None:
        due = [s for s in states if s.needs_starts or now - s.starts_at >= STARTS_EVERY_S]
        if due:
            wanted = [tp for s in due for tp in s.partitions]
            starts = self._brokers.list_offsets(dict.fromkeys(wanted, EARLIEST))
            for state in due:
                state.log_starts = {p: starts[n, p] for n, p in state.partitions}
                state.starts_at = now
                for observer in self._observers:
                    observer.log_starts(state.settings, dict(state.log_starts))
        wanted = [tp for s in states for tp in s.partitions]
        ends = self._brokers.list_offsets(dict.fromkeys(wanted, LATEST), "read_committed")
        for state in states:
            state.stable = {p: ends[n, p] for n, p in state.partitions}
            self.schedule.topics[state.name].saw(state.behind, now)
            if state.planned is not None and not state.in_flight and not state.behind:
                state.recovered()

    # -- turns

    def _first_of(self, due: list[str]) -> list[str]:
        """The first due topics that the table threads have room for, be it to open their tables. A
        topic that waits for room keeps no other from its turn."""
        room = self._room(again=False)
        queued: Counter[int] = Counter()
        for state in self.topics.values():
            queued[self.tables.thread_of(state.location)] += state.in_flight
        found: list[str] = []
        for name in due:
            state = self.topics[name]
            thread = self.tables.thread_of(state.location)
            if state.planned is None:
                if room <= 0:
                    continue
                room -= 1
            elif queued[thread] >= COMMIT_QUEUE_MAX:
                continue
            else:
                queued[thread] += 1
            found.append(name)
            if len(found) == TURNS_A_STEP:
                break
        return found

    def _take_turns(self, due: list[str]) -> bool:
        """Give these topics their turns, or open their tables first; False if neither can begin
        now."""
        now, known = self._clock.monotonic(), self.schedule.topics
        self._look([n for n in due if now - known[n].looked_at >= known[n].look_s], now)
        has_begun = False
        for name in due:
            state = self.topics[name]
            if self._clock.monotonic() - now > STEP_S:
                break
            if state.is_busy or now < known[name].retry_at:
                continue  # the look has failed
            if state.planned is None:
                self._open(state)
            else:
                self._turn(state)
            has_begun = True
        return has_begun

    def _turn(self, state: TopicState) -> None:
        """Write the next ranges of a topic, and give them to the table thread."""
        at = self.schedule.topics[state.name]
        offsets_max = max(1, int(TURN_BYTES / max(1.0, at.bytes_per_offset)))
        ranges, has_more = state.plan(offsets_max)
        if not ranges:
            at.saw(0, self._clock.monotonic())
            return
        try:
            written = self._writers.write(state.location, ranges, at.bytes_per_offset)
        except (HeadwaterError, OSError) as error:
            self._fail(state, error)
            return
        except Exception as error:
            logger.exception("a turn of %s failed unexpectedly", state.name)
            self._fail(state, HeadwaterError(f"{type(error).__name__}: {error}"))
            return
        offsets = sum(r.end_offset - r.start_offset for r in ranges)
        now = self._clock.monotonic()
        since = at.took(offsets, written.fetched_bytes, has_more, now)
        state.took(ranges)
        state.fetched_bytes += written.fetched_bytes
        self.tables.commit(state.location, Turn(ranges, written.files, since))

    def _take(self, event: Event) -> None:
        """Note what the table thread has done."""
        state = self.topics.get(event.topic)
        if state is None or state.location != event.location:
            return  # the topic was dropped meanwhile
        now = self._clock.monotonic()
        if isinstance(event, Failed):
            state.in_flight = max(0, state.in_flight - (event.since is not None))
            state.ends = dict(event.ends or state.ends)
            self._fail(state, event.error, since=event.since)
            return
        state.facts, state.ends = event.facts, dict(event.ends)
        state.opened_at = now
        if isinstance(event, Opened):
            state.is_opening = False
            if not state.in_flight:
                state.planned = dict(event.ends)
                if not state.behind:  # what was seen before is in the table
                    at = self.schedule.topics[state.name]
                    at.saw(0, at.looked_at)
            for observer in self._observers:
                observer.opened(state.settings, event)
                if state.log_starts:  # they may have been asked for before
                    observer.log_starts(state.settings, dict(state.log_starts))
            return
        state.in_flight = max(0, state.in_flight - 1)
        state.rows += event.rows
        state.commits += 1
        state.committed_ms = self._clock.now_ms()
        state.recovered()
        self.schedule.topics[state.name].committed(event.since, now)
        for observer in self._observers:
            observer.committed(state.settings, event)

    def _fail(self, state: TopicState, error: Exception, since: float | None = None) -> None:
        at = self.schedule.topics[state.name]
        text = " ".join(str(error).split())
        if text != state.error:
            logger.warning("tiering of %s waits: %s", state.name, text)
        state.failed(error, self._clock.now_ms())
        at.failed(self._clock.monotonic(), since=since)


def _say_replaced(former: TopicState, now: TieredTopic) -> None:
    """Log why a topic has another table from now on."""
    if former.settings.topic.uuid == now.topic.uuid:
        logger.warning("%s: its table was %s until now", former.name, former.location.uri)
        return
    logger.warning(
        "%s was deleted and created again (id %s, now %s): the table %s is of the former topic, and"
        " stays as it is",
        former.name,
        former.settings.topic.topic_id,
        now.topic.topic_id,
        former.location.uri,
    )
