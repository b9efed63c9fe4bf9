"""Half calls, silent and slow connections on the control port: a whole call gets through."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest

from headwater.ports.control import ControlUnavailableError
from headwater.wire.control import StatusReply, StatusRequest
from headwater.wire.control_payload import method_path
from headwater.wire.schema import Message
from headwater_broker.controller.control_client import GrpcControlCalls
from headwater_broker.network.control_grpc import THREADS_MAX, ControlServer
from self_signed import CERTIFICATE, KEY
from unit.local.test_control_plane import address, serving, serving_on_a_loop
from unit.local.test_control_plane_mtls import World

HALF_CALLS = 4 * THREADS_MAX
CALLS_PER_CONNECTION = 100
SILENT = 200
PATIENCE_S = 10.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


async def _status(_request: Message) -> Message:
    return StatusReply(ready=True, broker_id=7)


HANDLERS = {StatusRequest: _status}


@asynccontextmanager
async def half_calls(
    where: str, count: int, credentials: grpc.ChannelCredentials | None = None
) -> AsyncIterator[list[Any]]:
    """So many calls that have begun, and whose message does not come."""
    own = (("grpc.use_local_subchannel_pool", 1),)
    channels, calls = [], []
    for first in range(0, count, CALLS_PER_CONNECTION):
        channel = (
            grpc.aio.insecure_channel(where, options=own)
            if credentials is None
            else grpc.aio.secure_channel(where, credentials, options=own)
        )
        begin = channel.stream_unary(method_path(StatusRequest))
        channels.append(channel)
        calls += [begin() for _ in range(min(CALLS_PER_CONNECTION, count - first))]
    for call in calls:
        await call.wait_for_connection()
    try:
        yield calls
    finally:
        for channel in channels:
            await channel.close()


async def ask(where: str, credentials: grpc.ChannelCredentials | None = None) -> None:
    """One whole call on a connection of its own, as brokers call: again until it is answered."""
    calls = GrpcControlCalls(None if credentials is None else lambda: credentials)
    there = where if credentials is None else f"tls://{where}"
    async with asyncio.timeout(PATIENCE_S):
        reply = None
        while reply is None:
            try:
                reply = await calls.call(there, StatusRequest(), StatusReply, 10_000)
            except ControlUnavailableError:
                await asyncio.sleep(0.05)
    assert reply.broker_id == 7
    await calls.close()


def test_half_calls_keep_no_whole_one_out() -> None:
    async def run(where: str) -> None:
        async with half_calls(where, HALF_CALLS):
            for _ in range(3):
                await ask(where)

    with serving(HANDLERS) as server:
        asyncio.run(run(address(server)))


def test_half_calls_of_a_stranger_are_refused_without_waiting_for_their_message() -> None:
    world = World()
    mallory = world.credentials(world.leaf("mallory"))
    broker = world.credentials(world.leaf("broker-2"))

    async def run(where: str) -> None:
        async with half_calls(where, HALF_CALLS, mallory) as calls:
            async with asyncio.timeout(30):
                codes = {await call.code() for call in calls}
            assert codes == {grpc.StatusCode.PERMISSION_DENIED}
            await ask(where, broker)

    with world.serving() as where:
        asyncio.run(run(where))


def test_half_calls_of_a_broker_keep_no_whole_one_out() -> None:
    world = World()
    broker = world.credentials(world.leaf("broker-2"))

    async def run(where: str) -> None:
        async with half_calls(where, HALF_CALLS, broker):
            await ask(where, broker)

    with world.serving() as where:
        asyncio.run(run(where))


def test_a_call_that_ends_without_a_message_is_refused() -> None:
    async def run(where: str) -> None:
        async with half_calls(where, 1) as (call,):
            await call.done_writing()
            assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT

    with serving(HANDLERS) as server:
        asyncio.run(run(address(server)))


@pytest.mark.parametrize("has_tls", [False, True])
def test_silent_and_slow_connections_end_and_keep_no_call_out(has_tls: bool) -> None:
    shown = grpc.ssl_server_credentials([(KEY, CERTIFICATE)]) if has_tls else None
    trusted = grpc.ssl_channel_credentials(CERTIFICATE) if has_tls else None

    def make(loop: asyncio.AbstractEventLoop) -> ControlServer:
        return ControlServer(HANDLERS, loop, credentials=shown, handshake_timeout_s=0.5)

    with serving_on_a_loop(make) as server, ExitStack() as stack:
        clients = []
        for number in range(SILENT):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            client.settimeout(20)
            begun = CLIENT_HELLO if has_tls else PREFACE
            client.sendall(begun[: number % len(begun)])
            clients.append(client)
        asyncio.run(ask(address(server), trusted))
        for client in clients:
            while client.recv(4096):
                pass  # the server's settings; then it has closed
