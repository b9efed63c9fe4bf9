"""One look at every place of a topic: counts what is new, and tells every minute."""

from __future__ import annotations

from collections.abc import Mapping

from headwater.clock import Clock
from headwater_tier.audit.minutes import MINUTE_MS, PRODUCED, MinuteRow, Minutes
from headwater_tier.audit.places import LogPlace, Place


class TopicAudit:
    """The audit of one topic; `look` again counts only what came since."""

    def __init__(
        self, topic: str, log: LogPlace, places: Mapping[str, Place], grace_ms: int, clock: Clock
    ) -> None:
        """`places`: beside the log, by their names."""
        self._log = log
        self._places = places
        self._clock = clock
        self.minutes = Minutes(topic, list(places), grace_ms)
        self._starts: dict[int, int] | None = None

    def look(self) -> list[MinuteRow]:
        """Every minute, as it is now.

        The log is counted first: what comes meanwhile is at no other place before it is there.
        """
        is_first = self._starts is None
        if is_first:
            self._begin()
        before = dict(self.minutes.log.positions)
        ends = self._log.ends()
        self._count(PRODUCED, self._log, ends)
        for name, place in self._places.items():
            there = place.ends()
            if not place.has_own_offsets:
                there = {p: min(end, ends.get(p, 0)) for p, end in there.items()}
            self._count(name, place, there)
        is_quiet = {p: is_first or before.get(p) == self.minutes.log.positions.get(p) for p in ends}
        return self.minutes.rows(is_quiet, self._clock.now_ms())

    def _begin(self) -> None:
        """Minutes whose first records retention has deleted are not judged."""
        self._starts = self._log.starts()
        times = self._log.first_times()
        if times:
            self.minutes.since_ms = (max(times.values()) // MINUTE_MS + 1) * MINUTE_MS

    def _count(self, name: str, place: Place, ends: Mapping[int, int]) -> None:
        positions = self.minutes.places[name].positions
        first = {} if place.has_own_offsets else self._starts or {}
        starts = {p: positions.get(p, first.get(p, 0)) for p in ends}
        for partition, times, position in place.read(starts, ends):
            self.minutes.add(name, partition, times, self._clock.now_ms())
            positions[partition] = position
