"""Records per minute at several places, which minutes are over, and where they differ. Pure.

Counts are of records: offsets have holes. A minute is that of the record's timestamp.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

MINUTE_MS = 60_000
PRODUCED = "produced"
"""The place that the others are compared with: the log."""


@dataclass(slots=True)
class PlaceCounts:
    """What was counted at one place: the position of each partition, and records per minute."""

    positions: dict[int, int] = field(default_factory=dict)
    newest_ms: dict[int, int] = field(default_factory=dict)
    """partition -> the highest timestamp counted."""
    minutes: Counter[int] = field(default_factory=Counter)
    """Start of the minute (ms) -> records."""

    def add(self, partition: int, timestamps_ms: npt.NDArray[np.int64]) -> set[int]:
        """Count these records; the minutes that they are of."""
        if not len(timestamps_ms):
            return set()
        found, counts = np.unique(timestamps_ms // MINUTE_MS, return_counts=True)
        added = {int(m) * MINUTE_MS: int(n) for m, n in zip(found, counts, strict=True)}
        self.minutes.update(added)
        newest = int(timestamps_ms.max())
        self.newest_ms[partition] = max(newest, self.newest_ms.get(partition, newest))
        return set(added)


@dataclass(frozen=True, slots=True)
class MinuteRow:
    """One minute of a topic."""

    topic: str
    minute_ms: int
    produced: int
    counts: Mapping[str, int]
    """place -> records, without PRODUCED."""
    is_closed: bool
    """No more records of this minute are expected."""

    @property
    def differing(self) -> dict[str, int]:
        """place -> records more (or, below 0, fewer) than produced; empty while it is open."""
        if not self.is_closed:
            return {}
        return {name: n - self.produced for name, n in self.counts.items() if n != self.produced}


class Minutes:
    """The minutes of one topic."""

    def __init__(self, topic: str, places: Sequence[str], grace_ms: int) -> None:
        """`places`: beside the log. A minute is over when every partition has a record `grace_ms`
        past it, or gets no records and the clock is past it as far."""
        self.topic = topic
        self.places = {name: PlaceCounts() for name in (PRODUCED, *places)}
        self.since_ms: int | None = None
        """Earlier minutes are not judged: some of their records were not counted."""
        self._grace_ms = grace_ms
        self._closed: set[int] = set()
        self._reopened: dict[int, int] = {}
        """minute -> when a late record of it was seen."""

    @property
    def log(self) -> PlaceCounts:
        """The counts that the others are compared with."""
        return self.places[PRODUCED]

    def add(
        self, place: str, partition: int, timestamps_ms: npt.NDArray[np.int64], now_ms: int
    ) -> None:
        """Count records of a partition. One that comes after its minute was over opens it again."""
        changed = self.places[place].add(partition, timestamps_ms)
        if place == PRODUCED:
            self._reopened.update(dict.fromkeys(changed & self._closed, now_ms))

    def rows(self, partitions: Mapping[int, bool], now_ms: int) -> list[MinuteRow]:
        """Every minute in order. `partitions`: partition -> no records came since the last look."""
        passed = min(
            (self._passed_ms(p, is_quiet, now_ms) for p, is_quiet in partitions.items()), default=0
        )
        minutes = set[int]().union(*(place.minutes for place in self.places.values()))
        return [self._row(minute, passed, now_ms) for minute in sorted(minutes)]

    def _passed_ms(self, partition: int, is_quiet: bool, now_ms: int) -> int:
        newest = self.log.newest_ms.get(partition, 0)
        return max(newest, now_ms) if is_quiet else newest

    def _row(self, minute: int, passed_ms: int, now_ms: int) -> MinuteRow:
        is_over = passed_ms >= minute + MINUTE_MS + self._grace_ms
        if minute in self._reopened:
            is_over = is_over and now_ms >= self._reopened[minute] + self._grace_ms
        if is_over:
            self._closed.add(minute)
            self._reopened.pop(minute, None)
        is_judged = self.since_ms is None or minute >= self.since_ms
        counts = {name: p.minutes[minute] for name, p in self.places.items() if name != PRODUCED}
        return MinuteRow(
            self.topic, minute, self.log.minutes[minute], counts, is_over and is_judged
        )
