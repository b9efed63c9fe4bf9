"""The HTTP server of the status page over real loopback sockets: replies, refusals, limits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from headwater.errors import UsageError
from headwater_broker.network.http_guard import HttpGuard
from headwater_broker.network.http_server import TEXT, HttpReply, HttpStatusServer

HEAD = b"Host: localhost\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nConnection: close\r\n" + HEAD


async def hello() -> HttpReply:
    return HttpReply(b"hello", TEXT)


async def broken() -> HttpReply:
    raise RuntimeError("no")


def served(body: Callable[[HttpStatusServer], Awaitable[None]], **limits: Any) -> None:
    async def run() -> None:
        own = {"/": hello, "/broken": broken, **limits.pop("routes", {})}
        server = HttpStatusServer(own, **limits)
        await server.bind("127.0.0.1", 0)
        await server.serve()
        try:
            await body(server)
        finally:
            await server.close()

    asyncio.run(run())


async def ask(port: int, *sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for part in sent:
        writer.write(part)
    answer = await reader.read()
    writer.close()
    return answer


def test_two_requests_on_one_connection() -> None:
    async def body(server: HttpStatusServer) -> None:
        last = b"GET / HTTP/1.1\r\nConnection: close\r\n" + HEAD
        answer = await ask(server.port, b"GET / HTTP/1.1\r\n" + HEAD + last)
        assert answer.count(b"HTTP/1.1 200 OK\r\n") == 2 and answer.endswith(b"\r\n\r\nhello")
        assert b"no-store" in answer and b"Content-Security-Policy" in answer

    served(body)


def test_refusals_close_that_connection_only() -> None:
    async def body(server: HttpStatusServer) -> None:
        posted = await ask(server.port, b"POST / HTTP/1.1\r\n" + HEAD)
        assert posted.startswith(b"HTTP/1.1 405 ") and b"Allow: GET" in posted
        long = await ask(server.port, b"GET / HTTP/1.1\r\nX: " + b"y" * 20_000 + b"\r\n\r\n")
        assert long.startswith(b"HTTP/1.1 431 ")
        end = b"Connection: close\r\n" + HEAD
        assert b" 404 " in await ask(server.port, b"GET /none HTTP/1.1\r\n" + end)
        assert b" 500 " in await ask(server.port, b"GET /broken HTTP/1.1\r\n" + end)
        assert b" 200 " in await ask(server.port, b"GET / HTTP/1.1\r\n" + end)

    served(body)


def test_a_silent_client_is_cut_off() -> None:
    async def body(server: HttpStatusServer) -> None:
        assert await ask(server.port, b"GET / HT") == b""
        assert server.connections == 0

    served(body, head_timeout_s=0.05)


def test_silent_connections_give_way() -> None:
    async def body(server: HttpStatusServer) -> None:
        silent = []
        for sent in (b"", b"GET /", b"GET / HTTP/1.1\r\nHost: "):
            silent.append(await asyncio.open_connection("127.0.0.1", server.port))
            silent[-1][1].write(sent)
        for _ in range(5):
            assert (await ask(server.port, LAST)).startswith(b"HTTP/1.1 200 ")
        assert await silent[0][0].read() == b"", "the longest wait ends first"
        for _, writer in silent:
            writer.close()

    served(body, connections_max=2)


def test_too_many_requests_at_once_are_refused() -> None:
    async def body(server: HttpStatusServer) -> None:
        waiting = b"GET /waits HTTP/1.1\r\nConnection: close\r\n" + HEAD
        first = asyncio.ensure_future(ask(server.port, waiting))
        await asked.wait()
        assert (await ask(server.port)).startswith(b"HTTP/1.1 503 ")
        go_on.set()
        assert (await first).startswith(b"HTTP/1.1 200 ")

    asked, go_on = asyncio.Event(), asyncio.Event()

    async def waits() -> HttpReply:
        asked.set()
        await go_on.wait()
        return HttpReply(b"{}")

    served(body, connections_max=1, routes={"/waits": waits})


def test_a_busy_port_is_told() -> None:
    async def body(server: HttpStatusServer) -> None:
        with pytest.raises(UsageError, match=r"status\.listener: port \d+ .* is in use"):
            await HttpStatusServer({}).bind("127.0.0.1", server.port)

    served(body)


def test_a_strange_host_and_a_missing_token_are_refused_before_any_route() -> None:
    async def body(server: HttpStatusServer) -> None:
        get = b"GET /broken HTTP/1.1\r\n"
        rebound = await ask(server.port, get + b"Host: evil.example\r\n\r\n")
        assert rebound.startswith(b"HTTP/1.1 421 ") and b"Connection: close" in rebound
        silent = await ask(server.port, get + HEAD)
        assert silent.startswith(b"HTTP/1.1 401 ") and b"WWW-Authenticate: Bearer\r\n" in silent
        shown = b"Authorization: Bearer t\r\nConnection: close\r\n"
        assert b" 200 OK" in await ask(server.port, b"GET / HTTP/1.1\r\n" + shown + HEAD)

    served(body, guard=HttpGuard(token=lambda: "t"))
