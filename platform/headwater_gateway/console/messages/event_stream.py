"""Server-sent events to one tab.

A scan reads no further than the browser takes: it waits in `send`. A live tail drops the oldest
rows and says how many. When the browser has gone, either ends.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import Any

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

ROWS_MAX = 500
BYTES_MAX = 1024 * 1024
BEAT_S = 5.0
BEAT = b": still here\n\n"
"""A line that says nothing, so that proxies and browsers keep the stream."""
HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


class TailQueue:
    """Rows between a live tail and a slow browser: the oldest are dropped, and counted."""

    def __init__(self) -> None:
        self.dropped = 0
        self._rows: deque[str] = deque()
        self._bytes = 0
        self._has_rows = asyncio.Event()

    def put(self, rows: Iterable[str]) -> None:
        """Add rows."""
        for row in rows:
            self._rows.append(row)
            self._bytes += len(row)
        while len(self._rows) > 1 and (len(self._rows) > ROWS_MAX or self._bytes > BYTES_MAX):
            self._bytes -= len(self._rows.popleft())
            self.dropped += 1
        if self._rows:
            self._has_rows.set()

    async def take(self, timeout_s: float) -> list[str]:
        """All rows that wait; none when nothing came in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._has_rows.wait()
        except TimeoutError:
            return []
        rows = list(self._rows)
        self._rows.clear()
        self._bytes = 0
        self._has_rows.clear()
        return rows


def event(name: str, document: Any) -> bytes:
    """One event with a JSON document, which holds no line end."""
    return f"event: {name}\ndata: {json.dumps(document, separators=(',', ':'))}\n\n".encode("ascii")


def rows_event(rows: list[str]) -> bytes:
    """An event of rows that are JSON already."""
    return f"event: rows\ndata: [{','.join(rows)}]\n\n".encode("ascii")


class EventStream(Response):
    """The response that sends events until they end or the browser has gone."""

    media_type = "text/event-stream"

    def __init__(self, events: Callable[[], AsyncGenerator[bytes, None]]) -> None:
        super().__init__(headers=HEADERS)
        self._events = events
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        try:
            await self._send_events(receive, send)
        except asyncio.CancelledError:
            pass  # the server stops, and says so to whoever reads by the end of the reply
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_events(self, receive: Receive, send: Send) -> None:
        """Until they end or the browser has gone."""
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            async with aclosing(self._events()) as events:
                async for data in events:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            tasks.cancel_scope.cancel()
