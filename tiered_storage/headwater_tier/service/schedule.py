"""Which topic is tiered next: the earliest deadline first, with a back-off per topic. Pure.

A topic's deadline is the time when its oldest untiered record became known, plus its
`delta.interval.ms`. A turn has a limit of bytes, and after it the deadline begins anew, so that a
flooded topic cannot starve a trickling one. Times are seconds of a monotonic clock.
`offset_ranges` decides which offsets a turn may take: an open transaction holds them back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

TURN_BYTES = 64 << 20
"""Fetched bytes of one turn; a topic with as much waits no longer for its deadline."""
LOOK_SHARE = 3
"""How often per interval the log end of a busy topic is asked for."""
LOOK_S_MIN, LOOK_S_MAX = 0.1, 5.0
IDLE_AFTER_S = 30.0
"""A topic without new records for so long is asked for once per interval."""
BACK_OFF_S = (1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
BYTES_PER_OFFSET_GUESS = 1024.0
"""Until the first turn has measured it."""
SMOOTHING = 0.3
"""The weight of the newest value in running means."""


@dataclass(slots=True)
class TopicSchedule:
    """What the schedule knows of one topic."""

    interval_s: float
    looked_at: float = float("-inf")
    """When its log end was asked for last."""
    pending_since: float | None = None
    """A time before which the oldest untiered record did not exist; None: nothing is untiered."""
    behind: int = 0
    """Committed offsets that are not in the table."""
    active_at: float = float("-inf")
    """When there were new records last."""
    has_more: bool = False
    """The last turn ended at its limit of bytes."""
    bytes_per_offset: float = BYTES_PER_OFFSET_GUESS
    failures: int = 0
    retry_at: float = float("-inf")
    committed_at: float | None = None
    achieved_s: float | None = None
    """The mean of the last commits' delays: from `pending_since` to the commit."""

    @property
    def deadline(self) -> float:
        """When the next commit is due; infinite while nothing is untiered."""
        return float("inf") if self.pending_since is None else self.pending_since + self.interval_s

    @property
    def look_s(self) -> float:
        """The pause between two looks at the log end of a topic without untiered records, and the
        age of a look at most with which a turn begins."""
        is_idle = self.pending_since is None and self.looked_at - self.active_at > IDLE_AFTER_S
        wanted = self.interval_s if is_idle else self.interval_s / LOOK_SHARE
        return min(LOOK_S_MAX, max(LOOK_S_MIN, wanted))

    @property
    def look_at(self) -> float:
        """When its log end is to be asked for next. With untiered records there is no hurry: its
        turn looks again, and until then only a whole turn's bytes matter."""
        pause = self.look_s if self.pending_since is None else LOOK_S_MAX
        return self.looked_at + pause

    def seconds_behind(self, now: float) -> float:
        """The age of the oldest untiered record at most; 0 if there is none."""
        return 0.0 if self.pending_since is None else max(0.0, now - self.pending_since)

    def is_due(self, now: float, *, is_draining: bool = False) -> bool:
        """True when its turn may begin: the deadline is over, or there is a whole turn's bytes."""
        if self.pending_since is None or now < self.retry_at:
            return False
        is_full = self.behind * self.bytes_per_offset >= TURN_BYTES
        return is_draining or self.has_more or is_full or self.deadline <= now

    def saw(self, behind: int, now: float) -> None:
        """The brokers answered: so many committed offsets are not in the table. At the first answer
        they may have waited for as long as any: they are due."""
        if behind > 0:
            self.active_at = now
            if self.pending_since is None:
                is_first = self.looked_at == float("-inf")
                pause = max(self.look_s, self.interval_s) if is_first else self.look_s
                self.pending_since = max(self.looked_at, now - pause)
        else:
            self.pending_since, self.has_more = None, False
        self.behind = behind
        self.looked_at = now

    def took(self, offsets: int, fetched_bytes: int, has_more: bool, now: float) -> float | None:
        """A turn has planned and written all but `has_more`; the former `pending_since`, which
        `committed` asks for. What is left waits from now on."""
        since = self.pending_since
        self.behind = max(0, self.behind - offsets)
        self.has_more = has_more
        self.pending_since = now if has_more else None
        if offsets > 0:
            measured = fetched_bytes / offsets
            is_first = self.bytes_per_offset == BYTES_PER_OFFSET_GUESS
            share = 1.0 if is_first else SMOOTHING
            self.bytes_per_offset += share * (measured - self.bytes_per_offset)
        return since

    def committed(self, since: float | None, now: float) -> None:
        """The commit of a turn is in the table; `since` is what `took` returned."""
        self.failures, self.retry_at = 0, float("-inf")
        self.committed_at = now
        if since is None:
            return
        delay = now - since
        known = delay if self.achieved_s is None else self.achieved_s
        self.achieved_s = known + SMOOTHING * (delay - known)

    def failed(self, now: float, *, since: float | None = None) -> None:
        """A look, turn or commit failed: the next attempt follows after a growing pause."""
        pause = BACK_OFF_S[min(self.failures, len(BACK_OFF_S) - 1)]
        self.failures += 1
        self.retry_at = now + pause
        if since is not None:
            known = [t for t in (since, self.pending_since) if t is not None]
            self.pending_since = min(known)


@dataclass(slots=True)
class Schedule:
    """The schedules of all topics of one service."""

    topics: dict[str, TopicSchedule] = field(default_factory=dict)
    is_draining: bool = False
    """No topic waits for its deadline: everything is to be tiered at once."""

    def follow(self, intervals: Mapping[str, float]) -> None:
        """Have exactly these topics, with these intervals in seconds."""
        for gone in self.topics.keys() - intervals.keys():
            del self.topics[gone]
        for name, interval_s in intervals.items():
            known = self.topics.setdefault(name, TopicSchedule(interval_s))
            known.interval_s = interval_s

    def to_look_at(self, now: float) -> list[str]:
        """The topics whose log ends should be asked for, in the order of their names."""
        return sorted(
            name
            for name, topic in self.topics.items()
            if now >= topic.retry_at and now >= topic.look_at
        )

    def due(self, now: float, busy: Iterable[str] = ()) -> list[str]:
        """The due topics, the earliest deadline first. Topics in `busy` wait."""
        waiting = set(busy)
        found = [
            (topic.deadline, name)
            for name, topic in self.topics.items()
            if name not in waiting and topic.is_due(now, is_draining=self.is_draining)
        ]
        return [name for _, name in sorted(found)]

    def pause_s(self, now: float, most: float, busy: Iterable[str] = ()) -> float:
        """How long nothing is to be done, `most` at most; topics in `busy` report when they can go
        on."""
        waiting = set(busy)
        times = [now + most]
        for name, topic in self.topics.items():
            if name not in waiting:
                times.append(max(topic.retry_at, min(topic.look_at, topic.deadline)))
        return max(0.0, min(times) - now)
