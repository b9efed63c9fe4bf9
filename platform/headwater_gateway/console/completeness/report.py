"""The minutes that `headwater audit --to TOPIC` has written, as a page shows them. Pure.

Anyone who may write to the topic writes what stands there: what is no minute is counted, not shown.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any

from headwater.client.values import ConsumerRecord

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
COUNT_MAX = 2**63 - 1


class State(IntEnum):
    """Of a minute; the worst first."""

    DIFFERS = 0
    OPEN = 1
    EQUAL = 2

    @property
    def text(self) -> str:
        """As pages write it, and as their filter finds it."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class Count:
    """The records of a minute at one place; `differing`: more or, below 0, fewer than produced."""

    place: str
    records: int
    differing: int


@dataclass(frozen=True, slots=True)
class Minute:
    """The records of a minute of a topic: those in the log, and those at each place."""

    topic: str
    minute_ms: int
    produced: int
    counts: tuple[Count, ...]
    state: State


@dataclass(frozen=True, slots=True)
class TopicSum:
    """What is known of one topic."""

    topic: str
    over: int
    """Minutes that get no more records."""
    differing: int
    records: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class Report:
    """Each minute as it was last written. `strange`: records that are no minutes."""

    minutes: tuple[Minute, ...]
    topics: tuple[TopicSum, ...]
    strange: int


def report_of(records: Iterable[ConsumerRecord]) -> Report:
    """The report that these records of one partition make; the last one of a minute counts."""
    newest: dict[tuple[str, int], tuple[int, Minute]] = {}
    strange = 0
    for record in records:
        if record.value is None:  # a minute that somebody took out of the compacted topic
            continue
        minute = minute_of(record.value)
        if minute is None:
            strange += 1
            continue
        key = (minute.topic, minute.minute_ms)
        if key not in newest or newest[key][0] < record.offset:
            newest[key] = (record.offset, minute)
    minutes = tuple(minute for _, minute in newest.values())
    return Report(minutes, _sums(minutes), strange)


def minute_of(value: bytes) -> Minute | None:
    """The minute that a record tells; None: it tells none."""
    try:
        stored = json.loads(value)
        return _minute(stored)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        return None


def _minute(stored: Mapping[str, Any]) -> Minute:
    at = datetime.fromisoformat(stored["minute"])
    minute_ms = (at - EPOCH) // timedelta(milliseconds=1)
    differing = {str(place): int(more) for place, more in stored["differing"].items()}
    counts = tuple(
        Count(str(place), _count(records), differing.get(str(place), 0))
        for place, records in stored["places"].items()
    )
    is_closed = stored["is_closed"] is True
    state = State.DIFFERS if differing else State.EQUAL if is_closed else State.OPEN
    return Minute(_text(stored["topic"]), minute_ms, _count(stored["produced"]), counts, state)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _count(value: object) -> int:
    if not isinstance(value, int) or not 0 <= value <= COUNT_MAX:
        raise ValueError(value)
    return value


def _sums(minutes: Iterable[Minute]) -> tuple[TopicSum, ...]:
    by_topic: dict[str, list[Minute]] = {}
    for minute in minutes:
        by_topic.setdefault(minute.topic, []).append(minute)
    return tuple(
        TopicSum(
            topic,
            sum(m.state is not State.OPEN for m in rows),
            sum(m.state is State.DIFFERS for m in rows),
            sum(m.produced for m in rows),
            max(m.minute_ms for m in rows),
        )
        for topic, rows in sorted(by_topic.items())
    )
