"""Events to a tab: one line each, a tail that drops the oldest, an end when the tab has gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from headwater_gateway.console.messages.event_stream import (
    BYTES_MAX,
    ROWS_MAX,
    EventStream,
    TailQueue,
    event,
    rows_event,
)


def test_an_event_is_one_line_whatever_it_holds() -> None:
    text = "a\nb\r\ndata: x\u2028\u202e\ud800"
    lines = event("rows", {"text": text}).decode().split("\n")
    assert lines[0] == "event: rows" and lines[2:] == ["", ""]
    assert json.loads(lines[1].removeprefix("data: "))["text"] == text
    assert rows_event(['{"a":1}', '{"a":2}']) == b'event: rows\ndata: [{"a":1},{"a":2}]\n\n'


def test_a_tail_drops_the_oldest_and_counts_them() -> None:
    async def go() -> tuple[list[str], int]:
        queue = TailQueue()
        queue.put(str(number) for number in range(ROWS_MAX + 20))
        return await queue.take(1), queue.dropped

    rows, dropped = asyncio.run(go())
    assert dropped == 20 and rows[0] == "20" and len(rows) == ROWS_MAX


def test_a_tail_is_bounded_in_bytes_and_keeps_the_newest() -> None:
    async def go() -> tuple[list[str], int, list[str]]:
        queue = TailQueue()
        queue.put(["a" * BYTES_MAX, "b" * BYTES_MAX, "c"])
        return await queue.take(1), queue.dropped, await queue.take(0)

    rows, dropped, nothing = asyncio.run(go())
    assert (rows, dropped, nothing) == (["c"], 2, [])


def test_the_scan_ends_when_the_browser_has_gone() -> None:
    ended: list[str] = []
    sent: list[Any] = []

    async def endless() -> AsyncGenerator[bytes, None]:
        try:
            while True:
                yield b": x\n\n"
                await asyncio.sleep(0)
        finally:
            ended.append("scan")

    async def go() -> None:
        gone = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)
            if len(sent) > 5:
                gone.set()

        async with asyncio.timeout(10):
            await EventStream(endless)({"type": "http"}, receive, send)

    asyncio.run(go())
    assert ended == ["scan"]
    assert dict(sent[0]["headers"])[b"content-type"].startswith(b"text/event-stream")
