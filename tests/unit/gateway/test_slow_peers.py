"""A peer that sends nothing, or reads nothing, does not keep a connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

from headwater_gateway.serving import protocol

SHORT_S = 0.05
LARGE = b"x" * (32 * 1024 * 1024)
SMALL = b"x"


async def large(_scope: Any, _receive: Any, send: Any) -> None:
    """A reply that no socket's buffers hold."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": LARGE})


async def small(_scope: Any, _receive: Any, send: Any) -> None:
    """A reply of one byte."""
    headers = [(b"content-length", b"1")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": SMALL})


@asynccontextmanager
async def listening(app: Any = large) -> AsyncIterator[tuple[int, Any]]:
    """uvicorn's protocol on a port."""
    config = uvicorn.Config(app, lifespan="off", log_config=None)
    config.load()
    state = uvicorn.server.ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: protocol.BoundedProtocol(config, state, {}), "127.0.0.1", 0
    )
    try:
        yield server.sockets[0].getsockname()[1], state
    finally:
        server.close()


async def until_closed(state: Any) -> None:
    async with asyncio.timeout(20):
        while state.connections:
            await asyncio.sleep(0.01)


def test_a_reply_that_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "STUCK_WRITE_S", SHORT_S)

    async def run() -> None:
        async with listening() as (port, state):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.read(1)
            await until_closed(state)
            writer.close()

    asyncio.run(run())


def test_a_request_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", SHORT_S)

    async def run() -> None:
        async with listening() as (port, state):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost:")
            assert await reader.read(1) == b""
            await until_closed(state)
            writer.close()

    asyncio.run(run())


def test_a_second_request_that_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of connections that have asked once would hold all places for ever."""
    monkeypatch.setattr(protocol, "HEAD_S", SHORT_S)

    async def run() -> None:
        async with listening(small) as (port, state):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(1) == SMALL
            writer.write(b"GET / HTTP/1.1\r\nHost:")
            assert await reader.read(1) == b""
            await until_closed(state)
            writer.close()

    asyncio.run(run())


def test_a_head_without_end() -> None:
    async def run() -> None:
        async with listening() as (port, state):
            _reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
            with pytest.raises(ConnectionError):
                while True:
                    writer.write(b"x" * 65_536)
                    await writer.drain()
            await until_closed(state)
            writer.close()

    asyncio.run(run())


def test_a_reply_that_is_read_slowly_arrives_whole() -> None:
    async def run() -> int:
        async with listening() as (port, _state):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            size = 0
            while piece := await reader.read(65_536):
                size += len(piece)
            writer.close()
            return size

    assert asyncio.run(run()) > len(LARGE)
