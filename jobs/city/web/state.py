"""The state behind the pages, kept from the topics' records. Pure.

The state has sections; a record changes one or a few of them. A page gets whole sections, so a slow
browser misses steps in between and nothing else.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from city.fields import (
    ALARMS,
    STATISTICS,
    STATISTICS_INSTRUCTIONS,
    TRACKS,
    VIDEO_OBJECTS,
    WATCH_INSTRUCTIONS,
)
from city.instructions import (
    CountInstruction,
    StopInstruction,
    WatchInstruction,
    parse_instruction,
)
from headwater.errors import UsageError

ALARMS_KEPT = 100
POINTS_SHOWN = 300
"""Of each track: the newest."""
TRACKS_KEPT = 200
INTERVALS_KEPT = 1_500
OBJECTS_KEPT = 300
CITY_FLOW = "city-flow"
"""The instruction that counts every checkpoint for the map."""

Body = dict[str, Any]


@dataclass
class Track:
    """A watch instruction and the captures that matched it."""

    wanted: str
    is_active: bool = True
    is_taken: bool = False
    total: int = 0
    points: deque[Body] = field(default_factory=lambda: deque(maxlen=POINTS_SHOWN))

    def body(self) -> Body:
        """For the page."""
        points = sorted(self.points, key=lambda p: int(p["capture_ms"]))
        return {**self.head(), "points": points}

    def head(self) -> Body:
        """For the list of tracks."""
        return {
            "wanted": self.wanted,
            "is_active": self.is_active,
            "is_taken": self.is_taken,
            "total": self.total,
        }


@dataclass
class CityState:
    """The sections of both pages. One thread writes; others read under its lock."""

    now_ms: int = 0
    """The city time of the newest capture that was reported."""
    tracks: dict[str, Track] = field(default_factory=dict)
    asked_counts: dict[str, CountInstruction] = field(default_factory=dict)
    counts: dict[str, dict[int, dict[str, int]]] = field(default_factory=dict)
    latency: dict[float, Body] = field(default_factory=dict)
    quality: dict[int, Body] = field(default_factory=dict)
    ranking: list[Body] = field(default_factory=list)
    alarms: dict[str, Body] = field(default_factory=dict)
    objects: deque[Body] = field(default_factory=lambda: deque(maxlen=OBJECTS_KEPT))

    def apply(self, topic: str, value: bytes | None) -> set[str]:
        """Take a record; the names of the sections that it has changed. What is none is skipped."""
        if topic in (WATCH_INSTRUCTIONS, STATISTICS_INSTRUCTIONS):
            return self._instruct(value)
        try:
            told = json.loads(value or b"")
            return self._apply(topic, told) if isinstance(told, dict) else set()
        except (ValueError, KeyError, TypeError):
            return set()

    def _apply(self, topic: str, told: Body) -> set[str]:
        if topic == ALARMS:
            return self._alarm(told)
        if topic == VIDEO_OBJECTS:
            self.objects.append(told)
            return {"videos"}
        kinds: dict[str, Callable[[Body], set[str]]] = {
            "point": self._point,
            "taken": self._taken,
            "count": self._count,
            "latency": self._latency,
            "quality": self._quality,
            "ranking": self._ranking,
        }
        found = kinds.get(str(told.get("kind")))
        return found(told) if found is not None and topic in (TRACKS, STATISTICS) else set()

    def _instruct(self, value: bytes | None) -> set[str]:
        try:
            instruction = parse_instruction(value)
        except UsageError:
            return set()
        identity = instruction.instruction_id
        if isinstance(instruction, StopInstruction):
            if identity in self.tracks:
                self.tracks[identity].is_active = False
                return {"tracks", f"track:{identity}"}
            return {"counts"} if self.asked_counts.pop(identity, None) else set()
        if isinstance(instruction, CountInstruction):
            self.asked_counts[identity] = instruction
            return {"counts"}
        self.tracks[identity] = Track(wanted_text(instruction))
        while len(self.tracks) > TRACKS_KEPT:
            del self.tracks[next(iter(self.tracks))]
        return {"tracks", f"track:{identity}"}

    def _taken(self, told: Body) -> set[str]:
        identity = told["instruction_id"]
        if identity in self.tracks:
            self.tracks[identity].is_taken = True
            return {"tracks", f"track:{identity}"}
        return set()

    def _point(self, told: Body) -> set[str]:
        track = self.tracks.get(told["instruction_id"])
        if track is None or any(p["track_id"] == told["track_id"] for p in track.points):
            return set()
        at_ms = int(told["capture_ms"])
        track.points.append(told)
        track.total += 1
        return {"tracks", f"track:{told['instruction_id']}"} | self._pass_time(at_ms)

    def _count(self, told: Body) -> set[str]:
        intervals = self.counts.setdefault(str(told["instruction_id"]), {})
        bucket_ms = int(told["bucket_ms"])
        intervals[bucket_ms] = {str(k): int(n) for k, n in told["counts"].items()}
        if len(intervals) > INTERVALS_KEPT:
            del intervals[min(intervals)]
        is_map = told["instruction_id"] == CITY_FLOW
        return {"flow" if is_map else "counts"} | self._pass_time(bucket_ms)

    def _latency(self, told: Body) -> set[str]:
        self.latency[float(told["hour"])] = told
        return {"latency"}

    def _quality(self, told: Body) -> set[str]:
        self.quality[int(told["bucket_ms"])] = told
        return {"quality"}

    def _ranking(self, told: Body) -> set[str]:
        self.ranking = list(told["rows"])
        return {"ranking"}

    def _alarm(self, told: Body) -> set[str]:
        key = f"{told['flow']}/{told['key']}"
        former = self.alarms.pop(key, {})
        self.alarms[key] = {**told, "opened": former.get("opened", told["city_time"])}
        while len(self.alarms) > ALARMS_KEPT:
            del self.alarms[next(iter(self.alarms))]
        return {"alarms"}

    def _pass_time(self, at_ms: int) -> set[str]:
        if at_ms <= self.now_ms:
            return set()
        self.now_ms = at_ms
        return {"clock"}

    def body(self, section: str) -> Any:
        """A section as the page gets it."""
        if section.startswith("track:"):
            track = self.tracks.get(section.removeprefix("track:"))
            return None if track is None else track.body()
        makers: dict[str, Callable[[], Any]] = {
            "clock": lambda: self.now_ms,
            "flow": self._flow_body,
            "counts": self._counts_body,
            "tracks": lambda: {k: t.head() for k, t in self.tracks.items()},
            "latency": lambda: [self.latency[h] for h in sorted(self.latency)],
            "quality": lambda: [self.quality[b] for b in sorted(self.quality)],
            "ranking": lambda: self.ranking,
            "alarms": lambda: sorted(self.alarms.values(), key=_alarm_order, reverse=True),
            "videos": lambda: list(self.objects),
        }
        return makers[section]()

    def _flow_body(self) -> Body:
        intervals = self.counts.get(CITY_FLOW, {})
        full = sorted(intervals)[-2:]  # the newest one has only begun
        shown = full[0] if full else 0
        totals = [[ms, sum(counts.values())] for ms, counts in sorted(intervals.items())]
        return {"bucket_ms": shown, "counts": intervals.get(shown, {}), "totals": totals}

    def _counts_body(self) -> Body:
        return {
            identity: {
                "what": asked.what,
                "checkpoint_id": asked.checkpoint_id,
                "minutes": asked.minutes,
                "totals": [
                    [ms, sum(counts.values())]
                    for ms, counts in sorted(self.counts.get(identity, {}).items())
                ],
            }
            for identity, asked in self.asked_counts.items()
            if identity != CITY_FLOW
        }


def _alarm_order(alarm: Body) -> tuple[bool, str]:
    return bool(alarm.get("is_open", True)), str(alarm["city_time"])


def wanted_text(instruction: WatchInstruction) -> str:
    """Whom or what an instruction looks for, in words."""
    if instruction.traits:
        return ", ".join(value for _, value in instruction.traits)
    return instruction.person or f"a face, likeness {instruction.likeness:g}"
