"""The port between `run` and the six flows of the city.

`run` starts every flow before the day, stops them after it in the same order (the ingest first, so
that monitors see all of it), and prints a row of the proof for each of their figures.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from city.clock import CityClock, at_hour
from city.ledger import Ledger
from city.notify import Notifier
from city.world import World

Positions = Callable[[], Mapping[str, Mapping[int, int]]]
"""A mirror's positions in its source, by topic and partition."""


FIRST_COMMIT = f"{0:020}.json"


@dataclass(frozen=True)
class Figure:
    """A row of the proof: what the truth says, what the flow says, and whether they agree."""

    flow: str
    name: str
    oracle: str
    found: str
    equal: bool

    @classmethod
    def same(cls, flow: str, name: str, oracle: object, found: object) -> Figure:
        """A figure that must be equal to the truth."""
        return cls(flow, name, shown(oracle), shown(found), oracle == found)

    @classmethod
    def at_most(cls, flow: str, name: str, bound: float, found: float, unit: str) -> Figure:
        """A measured figure with a bound."""
        return cls(flow, name, f"<= {bound:g} {unit}", f"{found:.3g} {unit}", found <= bound)


def shown(value: object) -> str:
    """A value as the proof prints it."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list | tuple | set | frozenset):
        cells = sorted(map(str, value)) if isinstance(value, set | frozenset) else map(str, value)
        text = ", ".join(cells)
        return text if len(text) <= 60 else f"{text[:57]}..."
    return str(value)


@dataclass(frozen=True)
class Site:
    """A cluster and the folder of its tables: site A, and B, which takes over."""

    name: str
    servers: str
    tables: Path
    spark_options: dict[str, str] = field(default_factory=dict)
    """Options of Spark's readers and writers: the servers at least."""
    is_mirrored: bool = False
    """True when another cluster copies this one: spools then wait for the mirror's positions."""
    is_successor: bool = False
    """True when this site took over: its topics may have a record twice, with the same id."""

    def table(self, name: str) -> str:
        """The path of a Delta table of this site."""
        return str(self.tables / name)

    def has_table(self, name: str) -> bool:
        """True once the table has its first commit."""
        return (self.tables / name / "_delta_log" / FIRST_COMMIT).exists()

    def checkpoint(self, query: str) -> str:
        """The checkpoint folder of a streaming query of this site."""
        return str(self.tables.parent / f"checkpoints-{self.name}" / query)


@dataclass
class City:
    """What flows share. `site` is the one that works; `switch` moves everyone to another."""

    spark: SparkSession
    world: World
    clock: CityClock
    out: Path
    notifier: Notifier
    site: Site
    sites: list[Site]
    """All sites that have worked, in order."""
    ledger: Ledger
    schedule: Schedule
    stopping: threading.Event
    """Set when the day is over, and on an error."""
    on_switch: list[Callable[[Site], None]] = field(default_factory=list)
    """Called, in order, when another site takes over."""
    mirrored: Positions | None = None
    """A mirror's positions in the first site, by topic and partition: spools wait for them. A flow
    that mirrors sets it before the day."""
    planners: threading.Lock = field(default_factory=threading.Lock)
    """Held while a streaming query starts: Spark starts one Python planner at a time in time."""

    def switch(self, site: Site) -> None:
        """Another site takes over: producers and flows go on there."""
        self.sites.append(site)
        self.site = site
        for move in self.on_switch:
            move(site)

    def has_stored(self, topic: str) -> bool:
        """True once some site has the topic's table."""
        return any(site.has_table(topic) for site in self.sites)

    def stored(self, topic: str) -> DataFrame:
        """The rows of a topic's table, of all sites: a row that the first site has counts there."""
        frames = [
            self.spark.read.format("delta").load(site.table(topic))
            for site in self.sites
            if site.has_table(topic)
        ]
        rows = frames[0]
        for frame in frames[1:]:
            rows = rows.unionByName(frame.join(rows.select("record_id"), "record_id", "left_anti"))
        return rows


class Flow(Protocol):
    """One of the city's business flows."""

    @property
    def name(self) -> str:
        """Its name in the proof."""
        ...

    def start(self, city: City) -> None:
        """Begin, before the day: topics exist, nothing is produced yet."""
        ...

    def stop(self) -> None:
        """Process all that the day has left, and end. Called once, after the day."""
        ...

    def figures(self) -> Sequence[Figure]:
        """The rows of the proof, after all flows have stopped; batch jobs run here."""
        ...


@dataclass
class Event:
    """Something that happens at a city time."""

    name: str
    at_ms: int
    act: Callable[[], None]
    done: bool = False


class Schedule:
    """Events of the day, in order of their time, each run once on a thread of its own."""

    def __init__(self, clock: CityClock, stopping: threading.Event) -> None:
        self._clock = clock
        self._stopping = stopping
        self._events: list[Event] = []
        self._threads: list[threading.Thread] = []
        self.errors: list[str] = []

    def at(self, hour: float, name: str, act: Callable[[], None]) -> None:
        """Run `act` at an hour of the day. Call it before the day begins."""
        self._events.append(Event(name, at_hour(hour), act))

    def start(self) -> None:
        """Begin to wait for the events."""
        for event in sorted(self._events, key=lambda e: e.at_ms):
            thread = threading.Thread(target=self._run, args=(event,), name=f"city-{event.name}")
            self._threads.append(thread)
            thread.start()

    def join(self) -> list[str]:
        """Wait until every event has ended; what went wrong, and what did not happen."""
        for thread in self._threads:
            thread.join()
        missed = [f"{e.name} did not happen" for e in self._events if not e.done]
        return [*self.errors, *missed]

    def _run(self, event: Event) -> None:
        if self._stopping.wait(max(0.0, self._clock.seconds_until(event.at_ms))):
            return
        try:
            event.act()
            event.done = True
        except Exception as e:  # noqa: BLE001 - the end of the thread: `join` reports it
            self.errors.append(f"{event.name}: {e!r}")
