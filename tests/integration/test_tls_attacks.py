"""Attacks before authentication: floods of silent and slow connections, bytes that are no TLS."""

from __future__ import annotations

import asyncio
import random
import resource
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from headwater.security.plain import PlainExchange
from unit.local.test_control_plane import address, serving
from unit.local.test_half_calls import HANDLERS, PREFACE, ask, half_calls
from unit.network.test_tls_connection import Secure, Shown, secure
from unit.network.test_unauthenticated import HALF_A_FRAME
from unit.security.test_sasl_listener import SaslBroker, serve

pytestmark = pytest.mark.integration

SILENT = 5_000
DESCRIPTORS = 2 * SILENT + 1_000
PATIENCE_S = 5.0
FUZZED_BYTES = 10_000_000
GROWTH_MAX_MB = 200
HEADS = (
    b"",
    b"\x16\x03\x01",
    b"\x16\x03\x03\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"\x17\x03\x03",
    b"\x80",
)
SIZES = (10, 500, 17_000, 140_000)


def resident_mb() -> int:
    """Memory of this process, which is the broker too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) // 1024


async def connect_in_time(given: Secure, host: str) -> float:
    """How long a good client at `host` needs for its connection and handshake."""
    began = time.monotonic()
    async with asyncio.timeout(PATIENCE_S):
        _, writer = await asyncio.open_connection(
            "127.0.0.1", given.listener.port, ssl=Shown().context, local_addr=(host, 0)
        )
    writer.close()
    return time.monotonic() - began


def test_a_flood_of_silent_connections_keeps_no_good_one_out(tmp_path: Path) -> None:
    soft, hard = limits()

    async def story() -> None:
        async with secure(tmp_path) as given:
            before, silent = resident_mb(), []
            for number in range(SILENT):
                client = socket.socket()
                client.setblocking(False)
                client.bind((f"127.0.{number % 4 + 1}.{number % 10 + 2}", 0))
                address = ("127.0.0.1", given.listener.port)
                await asyncio.get_running_loop().sock_connect(client, address)
                silent.append(client)
            assert await connect_in_time(given, "127.0.0.1") < PATIENCE_S
            assert await connect_in_time(given, "127.0.1.2") < PATIENCE_S
            assert resident_mb() - before < GROWTH_MAX_MB
            for client in silent:
                client.close()

    with_limit(DESCRIPTORS, soft, hard, lambda: asyncio.run(story()))


async def flood(stack: ExitStack, port: int, begun: bytes) -> list[socket.socket]:
    """So many connections of 40 addresses: half of them send `begun`, the others nothing."""
    clients = []
    for number in range(SILENT):
        client = stack.enter_context(socket.socket())
        client.setblocking(False)
        client.bind((f"127.0.{number % 4 + 1}.{number % 10 + 2}", 0))
        await asyncio.get_running_loop().sock_connect(client, ("127.0.0.1", port))
        if number % 2:
            client.send(begun)
        clients.append(client)
    return clients


@pytest.mark.long
def test_a_flood_of_slow_connections_keeps_no_login_out(tmp_path: Path) -> None:
    """On SASL_PLAINTEXT."""
    soft, hard = limits()

    async def story(given: SaslBroker) -> None:
        before = resident_mb()
        with ExitStack() as stack:
            await flood(stack, given.port, HALF_A_FRAME)
            client = await given.login(PlainExchange("alice", "secret"))
            client.close()
            assert resident_mb() - before < GROWTH_MAX_MB

    with_limit(DESCRIPTORS, soft, hard, lambda: serve(tmp_path, story))


@pytest.mark.long
def test_a_flood_of_slow_connections_and_half_calls_keeps_no_control_call_out() -> None:
    soft, hard = limits()

    async def story(where: str, port: int) -> None:
        before = resident_mb()
        with ExitStack() as stack:
            await flood(stack, port, PREFACE[:9])
            await ask(where)
            async with half_calls(where, SILENT):
                await ask(where)
            assert resident_mb() - before < GROWTH_MAX_MB

    def run() -> None:
        with serving(HANDLERS) as server:
            asyncio.run(story(address(server), server.port))

    with_limit(DESCRIPTORS, soft, hard, run)


def limits() -> tuple[int, int]:
    """The limits of descriptors of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < DESCRIPTORS:
        pytest.skip(f"the system allows {hard} descriptors, this needs {DESCRIPTORS}")
    return soft, hard


def with_limit(count: int, soft: int, hard: int, run: Callable[[], None]) -> None:
    """Run with so many descriptors."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(count, soft), hard))
    try:
        run()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.long
def test_ten_million_bytes_that_are_no_tls_harm_nobody(tmp_path: Path) -> None:
    async def story() -> None:
        chance, sent, before = random.Random(25), 0, resident_mb()
        async with secure(tmp_path) as given:
            bystander = await given.connect(Shown())
            while sent < FUZZED_BYTES:
                data = chance.choice(HEADS) + chance.randbytes(chance.choice(SIZES))
                reader, writer = await asyncio.open_connection("127.0.0.1", given.listener.port)
                writer.write(data)
                sent += len(data)
                try:
                    writer.write_eof()
                    async with asyncio.timeout(PATIENCE_S):
                        await reader.read()
                except OSError:
                    pass  # the broker has closed it, as it should
                writer.close()
            await given.until(lambda: len(given.listener.connections) == 1)
            await bystander.negotiate()
            bystander.close()
            assert resident_mb() - before < GROWTH_MAX_MB

    asyncio.run(story())
