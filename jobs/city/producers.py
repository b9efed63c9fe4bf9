"""The devices of the city: smart cameras, and recognition servers for the others, as two fleets.

Each fleet sends its records with the SDK when their city time has come, out of its spool.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from city.clock import CityClock
from city.feeds import KEY, TIME, Feed
from city.flows import Positions, Site
from city.ledger import Ledger
from city.spool import Chunk, Spool
from city.world import World
from headwater import Producer
from headwater.errors import HeadwaterError

TICK_S = 0.1
RELEASE_EVERY_S = 0.5
LINGER_MS = 5


class Fleet:
    """Devices of one kind: a producer, a spool, a thread."""

    def __init__(
        self,
        name: str,
        feeds: Sequence[tuple[Feed, Any]],
        clock: CityClock,
        ledger: Ledger,
        folder: Path,
        positions: Positions | None,
    ) -> None:
        """`feeds`: with the rows that these devices send, in order. `positions`: of the mirror
        that the spool waits for; None where there is none."""
        self.name = name
        self.error: BaseException | None = None
        self.resent_rows = 0
        self._feeds = feeds
        self._next = [0] * len(feeds)
        self._clock = clock
        self._ledger = ledger
        self._spool = Spool(folder / name)
        self._positions = positions
        self._in_flight: list[tuple[Chunk, Any]] = []
        self._site: Site | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"city-{name}")

    def start(self, site: Site) -> None:
        """Begin to send to a site; nothing goes out before the day begins."""
        self._site = site
        self._thread.start()

    def move(self, site: Site) -> None:
        """Go on at another site: first what is left in the spool, then what is new."""
        self._site = site

    def stop(self) -> None:
        """End at once, for a run that failed."""
        self._stopping.set()

    def join(self) -> None:
        """Wait until everything is sent and acknowledged."""
        self._thread.join()

    @property
    def is_alive(self) -> bool:
        """True while there is something to send."""
        return self._thread.is_alive()

    @property
    def spooled(self) -> int:
        """Chunks that are not safe yet."""
        return len(self._spool)

    def _run(self) -> None:
        try:
            self._send_all()
        except Exception as e:  # noqa: BLE001 - the end of the thread: `Producers.check` reports it
            self.error = e

    def _send_all(self) -> None:
        site = self._site
        while site is not None and not self._stopping.is_set():
            with Producer(
                site.servers, acks="all", linger_ms=LINGER_MS, client_id=f"city-{self.name}"
            ) as producer:
                site = self._send_to(producer, site)

    def _send_to(self, producer: Producer, site: Site) -> Site | None:
        """Send until everything is acknowledged (None) or another site takes over (that one)."""
        self._in_flight = []
        for chunk in self._spool:
            self.resent_rows += len(chunk.rows)
            self._send(producer, chunk)
        released_s = self._clock.clock.monotonic()
        while not self._stopping.wait(TICK_S):
            if self._site is not site:
                producer.close(timeout=0)
                return self._site
            for number in range(len(self._feeds)):
                self._send_due(producer, number)
            for chunk in self._settle():
                self._send(producer, chunk)
            if self._clock.clock.monotonic() - released_s > RELEASE_EVERY_S:
                released_s = self._clock.clock.monotonic()
                self._spool.release(self._safe_positions(site))
            if self._is_done():
                self._spool.release(self._safe_positions(site))
                return None
        return None

    def _safe_positions(self, site: Site) -> Mapping[str, Mapping[int, int]] | None:
        """The mirror's, while the first site works: nothing mirrors the one that took over."""
        return self._positions() if self._positions is not None and site.is_mirrored else None

    def _send_due(self, producer: Producer, number: int) -> None:
        feed, rows = self._feeds[number]
        start = self._next[number]
        now_ms = self._clock.now_ms()
        end = int(np.searchsorted(feed.truth.sent_ms[rows[start:]], now_ms, side="right")) + start
        if end == start:
            return
        due = rows[start:end]
        self._next[number] = end
        self._send(producer, self._spool.put(feed.topic, due, feed.table(due)))

    def _send(self, producer: Producer, chunk: Chunk) -> None:
        feed = next(feed for feed, _ in self._feeds if feed.topic == chunk.topic)
        chunk.ranges = None
        self._ledger.note_sent(chunk.topic, chunk.rows, self._clock.real_now_ms())
        future = producer.send_table(
            chunk.topic, chunk.table(), key=KEY, value=feed.columns, timestamp=TIME
        )
        self._in_flight.append((chunk, future))

    def _settle(self) -> list[Chunk]:
        """Note what is acknowledged. The chunks that failed: they are named, and sent again."""
        waiting, failed = [], []
        for chunk, future in self._in_flight:
            if not future.done():
                waiting.append((chunk, future))
                continue
            try:
                chunk.ranges = future.result().offsets
            except HeadwaterError as e:
                self._ledger.note_failure(f"{self.name}, {chunk.topic}: {e}")
                failed.append(chunk)
                continue
            self._ledger.note_acked(chunk.topic, chunk.rows)
        self._in_flight = waiting
        return failed

    def _is_done(self) -> bool:
        if any(start < len(rows) for start, (_, rows) in zip(self._next, self._feeds, strict=True)):
            return False
        return not self._in_flight


class Producers:
    """Both fleets."""

    def __init__(
        self,
        world: World,
        feeds: Sequence[Feed],
        clock: CityClock,
        ledger: Ledger,
        folder: Path,
        positions: Positions | None = None,
    ) -> None:
        smart = np.array([c.server is None for c in world.deployment.cameras])
        self.fleets = [
            Fleet(
                name,
                [(feed, np.flatnonzero(smart[feed.truth.camera] == is_smart)) for feed in feeds],
                clock,
                ledger,
                folder,
                positions,
            )
            for name, is_smart in (("smart-cameras", True), ("recognition-servers", False))
        ]

    def start(self, site: Site) -> None:
        """Begin to send to a site."""
        for fleet in self.fleets:
            fleet.start(site)

    def move(self, site: Site) -> None:
        """Go on at another site."""
        for fleet in self.fleets:
            fleet.move(site)

    def stop(self) -> None:
        """End at once."""
        for fleet in self.fleets:
            fleet.stop()

    @property
    def is_alive(self) -> bool:
        """True while a fleet has something to send."""
        return any(fleet.is_alive for fleet in self.fleets)

    @property
    def resent_rows(self) -> int:
        """Records that were sent again to the site that took over."""
        return sum(fleet.resent_rows for fleet in self.fleets)

    def join(self) -> list[str]:
        """Wait until everything is acknowledged; what stopped a fleet."""
        for fleet in self.fleets:
            fleet.join()
        return [f"{f.name} stopped: {f.error!r}" for f in self.fleets if f.error is not None]
