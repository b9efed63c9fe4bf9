"""The live service's rules: reports for each record that it reads, without I/O.

An instruction holds for the records after it: it is *taken* at a position of every partition of
the data topics, and that position is reported with it. So the service has no state but its own
output: after a restart it reads which instructions were taken where, and which matches it has
reported, goes back to the first of these positions, and reports what is missing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from city.fields import STATISTICS, TRACKS
from city.instructions import (
    CountInstruction,
    Instruction,
    StopInstruction,
    WatchInstruction,
)
from city.sightings import Sighting
from city.statistics import PassageCounts
from city.watch import WatchList, track_point

Place = tuple[str, int]
"""(topic, partition)."""
Positions = dict[Place, int]
Report = tuple[str, str, bytes]
"""(topic, key, value)."""


@dataclass
class LiveDesk:
    """Watch-list and counts, and what has been reported."""

    watch_list: WatchList = field(default_factory=WatchList)
    passages: PassageCounts = field(default_factory=PassageCounts)
    taken: dict[str, Positions] = field(default_factory=dict)
    """Instruction id -> the positions from which it holds."""
    reported: set[str] = field(default_factory=set)
    """The ids of the track points that are in the topic."""
    _uncounted: dict[str, Positions] = field(default_factory=dict)
    """Counting instruction -> the next offset to count."""

    @property
    def active(self) -> list[str]:
        """The ids of the instructions that hold now."""
        return sorted([*self.watch_list.active, *self.passages.active])

    def remember(self, value: bytes | None) -> None:
        """Take up a report of an earlier run of the service."""
        told = json.loads(value or b"{}")
        if told.get("kind") == "taken":
            self.taken[told["instruction_id"]] = _read_positions(told["positions"])
        elif told.get("kind") == "point":
            self.reported.add(told["track_id"])

    def take(
        self, instruction: Instruction, positions: Mapping[Place, int], *, recalled: bool = False
    ) -> list[Report]:
        """Take an instruction at these positions.

        `recalled`: of the time before this start of the service; one that an earlier run took keeps
        the positions of then. An instruction that is given twice in a row changes nothing.
        """
        identity = instruction.instruction_id
        if isinstance(instruction, StopInstruction):
            return self._stop(instruction)
        if not recalled and instruction in (
            self.watch_list.active.get(identity),
            self.passages.active.get(identity),
        ):
            return []
        self.watch_list.apply(instruction)
        self.passages.apply(instruction)
        is_known = recalled and identity in self.taken
        if not is_known:
            self.taken[identity] = dict(positions)
        self._uncounted[identity] = dict(self.taken[identity])
        topic = STATISTICS if isinstance(instruction, CountInstruction) else TRACKS
        return [] if is_known else [(topic, identity, _event("taken", identity, positions))]

    def _stop(self, instruction: StopInstruction) -> list[Report]:
        identity = instruction.instruction_id
        self.watch_list.apply(instruction)
        self.passages.apply(instruction)
        self.taken.pop(identity, None)
        self._uncounted.pop(identity, None)
        return [(TRACKS, identity, _event("stopped", identity, {}))]

    def first_positions(self) -> Positions:
        """Where a restarted service has to begin: the first position of each partition."""
        first: Positions = {}
        for identity in self.active:
            for place, offset in self.taken.get(identity, {}).items():
                first[place] = min(offset, first.get(place, offset))
        return first

    def see(self, sighting: Sighting, place: Place, offset: int, sent_ms: int) -> Iterator[Report]:
        """Count a record, and report it to each watch that it matches and that holds for it. A
        record that is read a second time is neither counted nor reported again."""
        for counting in self.passages.active.values():
            if _is_before(counting, sent_ms):
                continue
            uncounted = self._uncounted[counting.instruction_id]
            if offset >= uncounted.get(place, 0):
                uncounted[place] = offset + 1
                self.passages.add(sighting, counting)
        for one in self.watch_list.matches(sighting):
            if _is_before(one, sent_ms):
                continue
            identity = one.instruction_id
            point = f"{identity}/{sighting.record_id}"
            if offset >= self.taken[identity].get(place, 0) and point not in self.reported:
                self.reported.add(point)
                yield TRACKS, identity, track_point(identity, sighting, place, offset, sent_ms)

    def changed_counts(self) -> Iterator[Report]:
        """The intervals whose counts have changed since the last call."""
        for identity, value in self.passages.take_changes():
            yield STATISTICS, identity, value


def _is_before(instruction: WatchInstruction | CountInstruction, sent_ms: int) -> bool:
    """True for a record that was sent before the time from which the instruction holds. A look-up
    by time may lead to an earlier offset: a transaction's marker has the time of its writing."""
    return instruction.since_ms is not None and sent_ms < instruction.since_ms


def _event(kind: str, identity: str, positions: Mapping[Place, int]) -> bytes:
    rows = {f"{topic}-{partition}": offset for (topic, partition), offset in positions.items()}
    told = {"kind": kind, "instruction_id": identity, "positions": rows}
    return json.dumps(told, separators=(",", ":")).encode()


def _read_positions(rows: Mapping[str, int]) -> Positions:
    places = {name: name.rpartition("-") for name in rows}
    return {(topic, int(n)): rows[name] for name, (topic, _, n) in places.items()}
