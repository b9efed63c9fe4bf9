"""Passages counted per checkpoint and interval, for each counting instruction. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from city.instructions import (
    EVERYWHERE,
    CountInstruction,
    Instruction,
    StopInstruction,
    WatchInstruction,
)
from city.sightings import Sighting

MINUTE_MS = 60_000

Bucket = tuple[str, int]
"""(instruction id, the interval's first millisecond)."""


@dataclass
class PassageCounts:
    """The counts of the active instructions, in memory."""

    active: dict[str, CountInstruction] = field(default_factory=dict)
    counts: dict[Bucket, Counter[str]] = field(default_factory=dict)
    _changed: set[Bucket] = field(default_factory=set)

    def apply(self, instruction: Instruction) -> None:
        """Take an instruction: it counts the records after this call, from 0 on."""
        if isinstance(instruction, WatchInstruction):
            return
        identity = instruction.instruction_id
        self.active.pop(identity, None)
        self.counts = {b: n for b, n in self.counts.items() if b[0] != identity}
        self._changed = {b for b in self._changed if b[0] != identity}
        if not isinstance(instruction, StopInstruction):
            self.active[identity] = instruction

    def add(self, sighting: Sighting, instruction: CountInstruction) -> None:
        """Count a record for one instruction, if it is of its kind and place."""
        if instruction.what != sighting.what:
            return
        if instruction.checkpoint_id not in (EVERYWHERE, sighting.checkpoint_id):
            return
        interval_ms = instruction.minutes * MINUTE_MS
        bucket = (instruction.instruction_id, sighting.capture_ms // interval_ms * interval_ms)
        counts = self.counts.get(bucket)
        if counts is None:
            counts = self.counts[bucket] = Counter()
        counts[sighting.checkpoint_id] += 1
        self._changed.add(bucket)

    def take_changes(self) -> Iterator[tuple[str, bytes]]:
        """(instruction id, value) of each interval whose counts have changed since the last call.

        A value has the whole interval's counts: the last one of an interval is its result.
        """
        changed, self._changed = sorted(self._changed), set()
        for identity, bucket_ms in changed:
            told = {
                "kind": "count",
                "instruction_id": identity,
                "what": self.active[identity].what,
                "minutes": self.active[identity].minutes,
                "bucket_ms": bucket_ms,
                "counts": dict(self.counts[identity, bucket_ms]),
            }
            yield identity, json.dumps(told, separators=(",", ":")).encode()
