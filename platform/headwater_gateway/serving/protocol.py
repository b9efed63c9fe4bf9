"""uvicorn's HTTP protocol with an end to waiting: slow or endless request heads, and peers that do
not read.

uvicorn waits without end while a peer's window is closed, also when it is to shut down; then the
connection is aborted here.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S = 20.0
"""The head of a request must have come by then; a connection's first one from its beginning on."""
HEAD_BYTES_MAX = 512 * 1024
"""Of a request's head; more than one read of a socket gives."""
STUCK_WRITE_S = 10.0
"""For so long a peer may leave a reply unread."""


class BoundedProtocol(HttpToolsProtocol):
    """Aborts a connection whose request does not come, or whose reply is not read."""

    _is_in_head = True
    _head_bytes = 0
    _head: asyncio.TimerHandle | None = None
    _stuck: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request, but not for ever."""
        super().connection_made(transport)
        self._head = self.loop.call_later(HEAD_S, transport.abort)

    def data_received(self, data: bytes) -> None:
        """A piece of a request. A head without end ends the connection."""
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX:
                self.transport.abort()
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._is_in_head = True
        _cancel(self._head)
        self._head = self.loop.call_later(HEAD_S, self.transport.abort)
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The request's head is there."""
        self._is_in_head, self._head_bytes = False, 0
        _cancel(self._head)
        super().on_headers_complete()

    def pause_writing(self) -> None:
        """The peer does not read."""
        super().pause_writing()
        self._stuck = self.loop.call_later(STUCK_WRITE_S, self.transport.abort)

    def resume_writing(self) -> None:
        """It does again."""
        super().resume_writing()
        _cancel(self._stuck)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is waited for."""
        _cancel(self._head)
        _cancel(self._stuck)
        super().connection_lost(exc)


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()
