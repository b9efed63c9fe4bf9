"""The delay of the answer to a failed authentication, so that passwords cannot be tried fast.

Kafka waits `connection.failed.authentication.delay.ms` each time. Here the delay doubles with each
failure of the same address.
"""

from __future__ import annotations

import asyncio

from headwater.clock import Clock

DELAY_MAX_S = 3.0
"""Clients here allow five seconds for a handshake: a refusal must reach them as one."""
FORGIVEN_AFTER_S = 60.0
"""An address without a failure for so long begins anew."""
HOSTS_MAX = 10_000
"""Addresses that are remembered; the one whose last failure is longest ago is forgotten."""
DOUBLINGS_MAX = 30


class FailureDelays:
    """The failures of all addresses, on all listeners of a broker."""

    def __init__(self, clock: Clock, delay_ms: int) -> None:
        self._clock = clock
        self._first_s = delay_ms / 1000
        self._failures: dict[str, tuple[int, float]] = {}
        """Host -> (failures in a row, when the last one was); the latest last."""

    async def __call__(self, host: str) -> None:
        """Count a failure; return when it may be answered."""
        await asyncio.sleep(self.failed(host))

    def failed(self, host: str) -> float:
        """Count a failure of `host`; the delay of its answer, in seconds."""
        now = self._clock.monotonic()
        count, last = self._failures.pop(host, (0, now))
        if now - last > FORGIVEN_AFTER_S:
            count = 0
        if len(self._failures) >= HOSTS_MAX:
            del self._failures[next(iter(self._failures))]
        self._failures[host] = (min(count + 1, DOUBLINGS_MAX), now)
        return min(self._first_s * (1 << count), max(DELAY_MAX_S, self._first_s))
