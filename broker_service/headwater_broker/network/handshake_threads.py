"""Threads for the flights of TLS handshakes: OpenSSL lets other threads run while it computes.

A flight takes a millisecond or less, so its way to a thread and back counts: no futures, and the
loop is woken once for all flights that ended meanwhile.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

HANDSHAKE_THREADS = 2

Ended = Callable[[Exception | None], None]
"""Called on the loop with the error of a flight."""

logger = logging.getLogger(__name__)


class HandshakeThreads:
    """The threads of one broker, started by the first flight."""

    def __init__(self, count: int = HANDSHAKE_THREADS) -> None:
        self._count = count
        self._flights: SimpleQueue[tuple[Callable[[], None], Ended] | None] = SimpleQueue()
        self._over: deque[tuple[Ended, Exception | None]] = deque()
        self._is_loop_told = False
        self._is_started = False
        self._is_closed = False

    def run(
        self, loop: asyncio.AbstractEventLoop, handshake: Callable[[], None], ended: Ended
    ) -> bool:
        """Run one flight; False when the threads are closed. `loop`: always the same one."""
        if self._is_closed:
            return False
        if not self._is_started:
            self._is_started = True
            for number in range(self._count):
                name = f"tls-handshake_{number}"
                threading.Thread(target=self._work, args=(loop,), name=name, daemon=True).start()
        self._flights.put((handshake, ended))
        return True

    def close(self) -> None:
        """End the threads; flights that wait are not run."""
        self._is_closed = True
        for _ in range(self._count):
            self._flights.put(None)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (flight := self._flights.get()) is not None:
            if self._is_closed:
                continue
            handshake, ended = flight
            error: Exception | None = None
            try:
                handshake()
            except ssl.SSLError as failure:
                error = failure
            except Exception as failure:
                logger.exception("a handshake of TLS failed")
                error = failure
            self._over.append((ended, error))
            # The loop takes the flag back before it looks: no flight is left behind.
            if not self._is_loop_told:
                self._is_loop_told = True
                try:
                    loop.call_soon_threadsafe(self._tell, loop)
                except RuntimeError:
                    return  # the loop is closed: nobody waits for it
            del flight, handshake, ended, error

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        self._is_loop_told = False
        try:
            while self._over:
                ended, error = self._over.popleft()
                ended(error)
        finally:
            if self._over:  # one has raised: the others are told all the same
                loop.call_soon(self._tell, loop)
