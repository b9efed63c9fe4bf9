"""Rounds of the monitors: look at the ten-minute buckets whose records are all stored."""

from __future__ import annotations

import threading
from collections.abc import Callable

from pyspark.sql import functions as f

from city.clock import BUCKET_MS, DAY_MS, DAY_START_MS
from city.fields import FACES, VEHICLES
from city.flows import City

ROUND_S = 8.0
BUCKETS = DAY_MS // BUCKET_MS

Look = Callable[[int, int], None]
"""Given the first bucket and the end: these are complete, and seen once."""


class Rounds:
    """A thread that calls `look` for each run of complete buckets, in order.

    A micro-batch takes all partitions up to one moment. So a bucket is complete once both tables
    have a row that was sent a bucket later.
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
        try:
            while not self._wait():
                end = self._complete()
                if end > self._seen:
                    self._look(self._seen, end)
                    self._seen = end
        except Exception as e:  # noqa: BLE001 - the end of the thread: `finish` raises it
            self.error = e

    def _wait(self) -> bool:
        return self._stopping.wait(ROUND_S) or self._city.stopping.is_set()

    def _complete(self) -> int:
        """The number of buckets, from midnight, whose records are stored."""
        newest = [self._newest_ms(topic) for topic in (VEHICLES, FACES)]
        return max(0, (min(newest) - DAY_START_MS) // BUCKET_MS - 1)

    def _newest_ms(self, topic: str) -> int:
        city = self._city
        if not city.has_stored(topic):
            return DAY_START_MS
        row = city.stored(topic).agg(f.max(f.unix_millis("sent_time"))).first()
        return DAY_START_MS if row is None or row[0] is None else int(row[0])
