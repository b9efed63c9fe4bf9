"""Limits before authentication: places per address and in all, time, requests."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

from headwater.client.connection import open_connection
from headwater.security.plain import PlainExchange
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest
from headwater.wire.framing import encode_request
from headwater_broker.network.unauthenticated import (
    UnauthenticatedConnections,
    UnauthenticatedLimits,
)
from headwater_broker.security.authentication_gate import UNAUTHENTICATED_REQUESTS_MAX
from solo_broker import SoloBroker
from unit.network.test_tls_connection import Secure, Shown, secure
from unit.security.test_sasl_listener import SaslBroker, serve

Writers = list[asyncio.StreamWriter]


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


@asynccontextmanager
async def silent(given: Secure, count: int, host: str = "127.0.0.1") -> AsyncIterator[Writers]:
    """So many connections of an address that send nothing."""
    writers = []
    for _ in range(count):
        _, writer = await asyncio.open_connection(
            "127.0.0.1", given.listener.port, local_addr=(host, 0)
        )
        writers.append(writer)
    try:
        yield writers
    finally:
        for writer in writers:
            writer.close()


def test_silent_connections_of_one_address_keep_no_other_address_out(tmp_path: Path) -> None:
    async def story() -> None:
        limits = UnauthenticatedLimits(places_per_host=5, contended_place_s=60.0)
        async with secure(tmp_path, limits=limits) as given, silent(given, 40, "127.0.0.2"):
            async with asyncio.timeout(5):
                good = await given.connect(Shown())
            assert len(given.listener.connections) <= 6
            good.close()

    run(story())


def test_silent_connections_give_way_to_a_good_one_of_the_same_address(tmp_path: Path) -> None:
    async def story() -> None:
        limits = UnauthenticatedLimits(places_per_host=5, contended_place_s=0.05)
        async with secure(tmp_path, limits=limits) as given, silent(given, 40):
            async with asyncio.timeout(5):
                good = await given.connect(Shown())
            good.close()

    run(story())


def test_more_than_can_wait_push_out_the_oldest(tmp_path: Path) -> None:
    async def story() -> None:
        limits = UnauthenticatedLimits(places=3, waiting_max=4, contended_place_s=60.0)
        async with secure(tmp_path, limits=limits) as given, silent(given, 12):
            await given.until(lambda: len(given.listener.connections) == 3)
            queue = given.listener.unauthenticated
            assert queue is not None
            await given.until(lambda: queue.waiting == 4)
            assert len(queue) == 3

    run(story())


def test_authenticated_connections_need_no_place(tmp_path: Path) -> None:
    async def story() -> None:
        limits = UnauthenticatedLimits(places=2)
        async with secure(tmp_path, limits=limits) as given, AsyncExitStack() as stack:
            for _ in range(6):
                client = await given.connect(Shown())
                stack.callback(client.close)
            assert len(given.listener.connections) == 6
            assert given.listener.unauthenticated is not None
            assert len(given.listener.unauthenticated) == 0

    run(story())


class Bare:
    """A listening socket with limits, and the connections that it serves."""

    def __init__(self, limits: UnauthenticatedLimits, greeting: bytes = b"") -> None:
        self.open = 0
        self.served = 0
        self._limits = limits
        self._greeting = greeting

    @asynccontextmanager
    async def serve(self, host: str) -> AsyncIterator[UnauthenticatedConnections]:
        loop = asyncio.get_running_loop()
        given = self

        class Served(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                given.open += 1
                given.served += 1
                self.transport = cast(asyncio.Transport, transport)
                if given._greeting:
                    self.transport.write(given._greeting)
                    self.transport.close()

            def connection_lost(self, exc: Exception | None) -> None:
                given.open -= 1
                queue.release(self.transport)

        queue = UnauthenticatedConnections(loop, Served, self._limits)
        server = await loop.create_server(queue.protocol, host, 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield queue
        finally:
            queue.close()
            server.close()

    async def connect(self, host: str = "127.0.0.1", local: int = 0) -> socket.socket:
        """A client's connection, from its port `local`, which may be in use."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.bind(("127.0.0.1", local))
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, (host, self.port))
        return client


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)


def test_connections_from_one_port_have_a_place_each() -> None:
    """A client may use one port for two connections, to two addresses of the broker."""

    async def story() -> None:
        given = Bare(UnauthenticatedLimits(places_per_host=2, place_s=0.2))
        async with given.serve("0.0.0.0") as queue:
            first = await given.connect("127.0.0.1")
            with first, await given.connect("127.0.0.2", first.getsockname()[1]):
                await until(lambda: given.served == 2)
                assert len(queue) == 2
                await until(lambda: not given.open)
            assert len(queue) == 0
            with await given.connect(), await given.connect():
                await until(lambda: given.served == 4)

    run(story())


def test_the_time_limit_holds_for_a_closed_connection_whose_client_does_not_read() -> None:
    async def story() -> None:
        given = Bare(UnauthenticatedLimits(place_s=0.2), greeting=bytes(16 * 1024 * 1024))
        async with given.serve("127.0.0.1") as queue:
            with await given.connect():
                await until(lambda: given.served == 1)
                await until(lambda: not given.open)
            assert len(queue) == 0

    run(story())


def test_too_many_requests_before_authentication_close_the_connection(tmp_path: Path) -> None:
    async def story() -> None:
        solo = SoloBroker(
            tmp_path,
            listeners="SASL_PLAINTEXT://127.0.0.1:0",
            inter_broker_listener_name="SASL_PLAINTEXT",
        )
        solo.listener_name = "SASL_PLAINTEXT"
        async with solo as broker:
            reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
            body = encode_request(ApiVersionsRequest(), 0, 1, None)
            frame = len(body).to_bytes(4, "big") + body
            writer.write(frame * (UNAUTHENTICATED_REQUESTS_MAX + 5))
            replies = 0
            try:
                while size := int.from_bytes(await reader.readexactly(4), "big"):
                    await reader.readexactly(size)
                    replies += 1
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            assert replies <= UNAUTHENTICATED_REQUESTS_MAX
            writer.close()
            again = await open_connection("127.0.0.1", broker.port)
            again.close()

    run(story())


HALF_A_FRAME = (500_000).to_bytes(4, "big") + b"\0"


@asynccontextmanager
async def slow(port: int, count: int, host: str) -> AsyncIterator[None]:
    """Connections of an address that send a frame byte by byte, and half of them nothing."""
    async with AsyncExitStack() as stack:
        writers = []
        for number in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
            stack.callback(writer.close)
            if number % 2:
                writer.write(HALF_A_FRAME)
                writers.append(writer)
        going_on = asyncio.create_task(go_on(writers))
        stack.callback(going_on.cancel)
        yield


async def go_on(writers: Writers) -> None:
    while True:
        for writer in writers:
            if not writer.is_closing():
                writer.write(b"\0")
        await asyncio.sleep(0.01)


def test_slow_connections_of_one_address_keep_no_login_of_another_out(tmp_path: Path) -> None:
    """On a listener of SASL without TLS: no handshake of TLS comes before."""

    async def story(given: SaslBroker) -> None:
        queue = given.listener.unauthenticated
        assert queue is not None
        queue.limits = UnauthenticatedLimits(places_per_host=5, contended_place_s=60.0)
        async with slow(given.port, 40, "127.0.0.2"):
            client = await given.login(PlainExchange("alice", "secret"))
            assert "alice" in given.principals
            assert len(queue) == 5
            client.close()

    serve(tmp_path, story)


def test_slow_connections_give_way_to_a_login_of_the_same_address(tmp_path: Path) -> None:
    async def story(given: SaslBroker) -> None:
        queue = given.listener.unauthenticated
        assert queue is not None
        queue.limits = UnauthenticatedLimits(places_per_host=5, contended_place_s=0.05)
        async with slow(given.port, 40, "127.0.0.1"):
            client = await given.login(PlainExchange("alice", "secret"))
            assert "alice" in given.principals
            client.close()

    serve(tmp_path, story)


def test_a_slow_connection_has_no_longer_than_a_silent_one(tmp_path: Path) -> None:
    async def story(given: SaslBroker) -> None:
        queue = given.listener.unauthenticated
        assert queue is not None
        queue.limits = UnauthenticatedLimits(place_s=0.2)
        async with slow(given.port, 4, "127.0.0.1"):
            await until(lambda: len(queue) == 4)
            await until(lambda: not given.listener.connections)

    serve(tmp_path, story)
