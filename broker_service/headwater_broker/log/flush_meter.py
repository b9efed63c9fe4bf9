"""Rate and time of logs' fsyncs (Kafka's LogFlushRateAndTimeMs)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from headwater.clock import Clock
from headwater_broker.runtime.histogram import Histogram


class FlushMeter:
    """Shared by all logs of a broker; they flush on the loop and in the disk thread."""

    def __init__(self, clock: Clock) -> None:
        self.times = Histogram()
        self._clock = clock
        self._lock = Lock()

    @contextmanager
    def timing(self) -> Iterator[None]:
        """One flush of one log; one that fails is not counted."""
        started = self._clock.monotonic()
        yield
        took = self._clock.monotonic() - started
        with self._lock:
            self.times.observe(took)
