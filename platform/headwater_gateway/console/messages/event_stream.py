"""Server-sent events to one tab: a bounded queue between the scan and the browser.

A scan waits for room, so it reads no further than somebody looks. A live tail drops the oldest rows
and says how many. When the browser has gone, the scan ends.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

ROWS_MAX = 500
BYTES_MAX = 1024 * 1024
BEAT_S = 5.0
"""A line that says nothing, so that proxies and browsers keep the stream."""
HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(slots=True)
class RowQueue:
    """Rows between a scan and a slow browser. Of one event loop."""

    drops_oldest: bool = False
    dropped: int = 0
    _rows: deque[str] = field(default_factory=deque)
    _bytes: int = 0
    _room: asyncio.Event = field(default_factory=asyncio.Event)

    async def put(self, row: str) -> None:
        """Add a row; waits for room, or drops the oldest ones."""
        while self._rows and self._is_full(len(row)):
            if self.drops_oldest:
                self._bytes -= len(self._rows.popleft())
                self.dropped += 1
            else:
                self._room.clear()
                await self._room.wait()
        self._rows.append(row)
        self._bytes += len(row)

    def take(self) -> list[str]:
        """All rows that wait."""
        rows = list(self._rows)
        self._rows.clear()
        self._bytes = 0
        self._room.set()
        return rows

    def _is_full(self, size: int) -> bool:
        return len(self._rows) >= ROWS_MAX or self._bytes + size > BYTES_MAX


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
        async with anyio.create_task_group() as tasks:

            async def watch() -> None:
                while (await receive())["type"] != "http.disconnect":
                    pass
                tasks.cancel_scope.cancel()

            tasks.start_soon(watch)
            async with aclosing(self._events()) as events:
                async for data in events:
                    await send({"type": "http.response.body", "body": data, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            tasks.cancel_scope.cancel()
