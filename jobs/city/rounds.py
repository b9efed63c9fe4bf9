"""Rounds of the monitors: look at the ten-minute buckets whose records are all stored."""

from __future__ import annotations

import threading
from collections.abc import Callable

from city.clock import BUCKET_MS, DAY_MS, DAY_START_MS
from city.fields import FACES, VEHICLES
from city.flows import City
from city.tables import newest_ms

ROUND_S = 8.0
ATTEMPTS = 3
"""Rounds in a row that may fail, as around the loss of a site."""
BUCKETS = DAY_MS // BUCKET_MS

Look = Callable[[int, int], None]
"""Given the first bucket and the end: these are complete, and seen once."""


class Rounds:
    """A thread that calls `look` for each run of complete buckets, in order.

    A micro-batch takes all partitions up to one moment. So a bucket is complete once both tables
    have a row that was sent a bucket later. A site that has taken over also gets older records
    again, so its buckets are complete only at the end. `look` must change nothing when it raises.
    """

    def __init__(self, city: City, name: str, look: Look) -> None:
        self._city = city
        self._look = look
        self._seen = 0
        self._thread = threading.Thread(target=self._run, name=f"city-{name}")
        self._stopping = threading.Event()
        self.error: BaseException | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self) -> None:
        """Look at all that is left; call it when everything is stored. Raises a round's error."""
        self._stopping.set()
        self._thread.join()
        if self.error is not None:
            raise self.error
        self._look(self._seen, BUCKETS)

    def _run(self) -> None:
        failures = 0
        while not self._wait():
            try:
                end = self._complete()
                if end > self._seen:
                    self._look(self._seen, end)
                    self._seen = end
                failures = 0
            except Exception as e:  # noqa: BLE001 - the next round tries again, and `finish` does
                failures += 1
                if failures == ATTEMPTS:
                    self.error = e
                    return

    def _wait(self) -> bool:
        is_over = self._stopping.wait(ROUND_S) or self._city.stopping.is_set()
        return is_over or self._city.site.is_successor

    def _complete(self) -> int:
        """The number of buckets, from midnight, whose records are stored."""
        newest = [self._newest_ms(topic) for topic in (VEHICLES, FACES)]
        return max(0, (min(newest) - DAY_START_MS) // BUCKET_MS - 1)

    def _newest_ms(self, topic: str) -> int:
        tables = [s.table(topic) for s in self._city.sites if s.has_table(topic)]
        found = [newest_ms(path, "sent_time") or DAY_START_MS for path in tables]
        return max(found, default=DAY_START_MS)
