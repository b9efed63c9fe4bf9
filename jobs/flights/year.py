"""Phase 1: produces the year's records in about a minute with the SDK, and kills twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from heapq import merge

from flights.connection import Connection
from flights.ledger import Ledger
from flights.records import Feed
from headwater import Producer
from headwater.clock import Clock

FLUSH_TIMEOUT_S = 60.0
PACE_SLEEP_S = 0.005


@dataclass
class Kill:
    """A kill on a date of the simulated year."""

    name: str
    at_ms: int
    execute: Callable[[], str]
    victim: str = ""
    killed_at_s: float = 0.0
    in_flight: int = 0

    @property
    def is_done(self) -> bool:
        """True once the kill has happened."""
        return self.killed_at_s > 0


@dataclass
class Year:
    """The production of the year; shared by the producing thread and the console."""

    feeds: list[Feed]
    ledger: Ledger
    kills: list[Kill]
    seconds: float
    clock: Clock
    now_ms: int = 0
    started_s: float = 0.0
    ended_s: float = 0.0
    error: BaseException | None = None
    stopping: threading.Event = field(default_factory=threading.Event)

    @property
    def date(self) -> str:
        """The simulated day."""
        return datetime.fromtimestamp(self.now_ms / 1000, UTC).strftime("%d %b %Y")

    def run(self, connection: Connection) -> None:
        """Produce the whole year; an error is kept for `check`."""
        try:
            with Producer(
                connection.servers, acks="all", linger_ms=5, **connection.sdk
            ) as producer:
                self._produce(producer)
                producer.flush(FLUSH_TIMEOUT_S)
        except Exception as e:  # noqa: BLE001 - the end of the thread: `check` reports it
            self.error = e
        self.ended_s = self.clock.monotonic()

    def _produce(self, producer: Producer) -> None:
        first = min(int(feed.timestamps_ms[0]) for feed in self.feeds)
        last = max(int(feed.timestamps_ms[-1]) for feed in self.feeds)
        self.started_s = start = self.clock.monotonic()
        pace = (last - first) / self.seconds
        due = iter(sorted(self.kills, key=lambda kill: kill.at_ms))
        kill = next(due, None)
        for at_ms, feed, i in self._in_order():
            wait = (at_ms - first) / pace - (self.clock.monotonic() - start)
            if wait > PACE_SLEEP_S and self.stopping.wait(wait):
                return
            self.now_ms = at_ms
            future = producer.send(
                feed.topic,
                feed.values[i],
                key=feed.keys[i],
                headers=list(feed.headers[i]),
                timestamp=at_ms,
            )
            self.ledger.note(feed.topic, i, future)
            if kill is not None and at_ms >= kill.at_ms:
                self._execute(kill)
                kill = next(due, None)

    def _in_order(self) -> Iterator[tuple[int, Feed, int]]:
        for at_ms, n, i in merge(*(_times(n, feed) for n, feed in enumerate(self.feeds))):
            yield at_ms, self.feeds[n], i

    def _execute(self, kill: Kill) -> None:
        """Kill right after a send: its record is in flight, as linger alone delays it by 5 ms."""
        kill.in_flight = self.ledger.in_flight
        kill.killed_at_s = self.clock.monotonic()
        kill.victim = kill.execute()

    def check(self) -> list[str]:
        """Problems as sentences; empty if every record was acknowledged and both kills happened."""
        problems = [] if self.error is None else [f"the producer stopped: {self.error!r}"]
        problems += [f"not acknowledged: {f}" for f in self.ledger.failures[:3]]
        if self.ledger.in_flight:
            problems.append(f"{self.ledger.in_flight} records were never answered")
        for kill in self.kills:
            if not kill.is_done:
                problems.append(f"{kill.name}: the kill did not happen")
            elif kill.in_flight == 0:
                problems.append(f"{kill.name}: no record was in flight at the kill")
        return problems


def _times(number: int, feed: Feed) -> Iterator[tuple[int, int, int]]:
    """(event time, feed number, row) in order."""
    for i, at_ms in enumerate(feed.timestamps_ms.tolist()):
        yield at_ms, number, i


def midnight_ms(month: int, day: int) -> int:
    """Midnight UTC of a day of 2013, in milliseconds."""
    return int(datetime(2013, month, day, tzinfo=UTC).timestamp() * 1000)
