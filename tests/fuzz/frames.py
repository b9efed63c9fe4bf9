"""Mutated requests against a whole broker, each checked by itself.

A request is fed to the real `Connection` over a transport without a socket, as if its bytes had
come in one read. The broker is real: handlers, log, replicas, listener. A second, real connection
checks now and then that the broker still answers.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fuzz.spoiling import framed, seeds, spoil
from headwater.client.connection import Connection as Client
from headwater.client.connection import open_connection
from headwater.wire.apis.k03_metadata import MetadataRequest, MetadataResponse
from headwater_broker.network.connection import Connection
from solo_broker import SoloBroker

FRAME_CPU_MAX_S = 1.0
"""More CPU time for one request counts as a hang."""
TURNS_MAX = 2000
"""Turns of the loop until a handler has answered."""
CANARY_EVERY = 5_000
CANARY_MAX_S = 30.0
PARKED_MAX = 200
"""Connections with a parked or incomplete request."""


class Wire(asyncio.Transport):
    """A transport that accepts all bytes."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__()
        self.sock = sock
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Dropped."""

    def close(self) -> None:
        """Closed by the broker."""
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        """True when the broker closed it."""
        return self.is_closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """A socket to set options on, and the peer's address."""
        return {"socket": self.sock, "peername": ("127.0.0.1", 1)}.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def get_write_buffer_size(self) -> int:
        """There is no buffer."""
        return 0

    def pause_reading(self) -> None:
        """The next request comes after the response anyway."""

    resume_reading = pause_reading


class Complaints(logging.Handler):
    """Errors that the broker logged: there must be none."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the line, with its exception."""
        self.lines.append(self.format(record))


@contextmanager
def complaints() -> Iterator[Complaints]:
    """The errors that are logged meanwhile; lower levels are switched off."""
    handler, root, server = Complaints(), logging.getLogger(), logging.getLogger("headwater_broker")
    level, before = server.level, root.handlers[:]
    root.handlers[:] = [handler]
    server.setLevel(logging.ERROR)
    try:
        yield handler
    finally:
        root.handlers[:] = before
        server.setLevel(level)


async def fuzz_frames(count: int, seed: int, found: Complaints) -> dict[str, int]:
    """Feed `count` requests to a new broker. Raises AssertionError with the one that did harm.

    Some mutated requests are valid, and their batches are stored.
    """
    with tempfile.TemporaryDirectory() as folder:
        return await _fuzz(Path(folder), count, random.Random(seed), found)


async def _fuzz(
    folder: Path, count: int, chance: random.Random, found: Complaints
) -> dict[str, int]:
    good = seeds()
    near, far = socket.socketpair()
    far.setblocking(False)
    near.setblocking(False)
    async with SoloBroker(folder, socket_request_max_bytes="1048576") as broker:
        broker.create_topic("t", configs={"segment.bytes": "1048576"})
        canary = await open_connection("127.0.0.1", broker.port)
        feeder = _Feeder(broker, near)
        for number in range(count):
            frame = framed(spoil(good[int(chance.random() * len(good))], chance), chance)
            await feeder.feed(frame)
            assert not found.lines, f"{frame.hex()}: {found.lines[0]}"
            if number % CANARY_EVERY == 0:
                _drain(far)
                await _still_fine(canary)
        await _still_fine(canary)
        canary.close()
        feeder.end()
        closed = broker.services.meters.connections_closed_malformed
        for _ in range(TURNS_MAX):
            if broker.services.meters.connections == 0:
                break
            await asyncio.sleep(0)
        assert broker.services.meters.connections == 0, "closed connections are forgotten"
    near.close()
    far.close()
    return {"frames": count, "closed their connection": closed}


class _Feeder:
    """Feeds one request after the other, on a new connection when the last one closed or waits."""

    def __init__(self, broker: SoloBroker, sock: socket.socket) -> None:
        self._broker = broker
        self._sock = sock
        self._connection: Connection | None = None
        self._parked: list[tuple[Connection, Wire]] = []

    async def feed(self, frame: bytes) -> None:
        connection = self._connection or self._connect()
        began = time.thread_time()
        assert connection.unsent_bytes == 0
        connection.shrink_when_quiet()  # the listener's sweep comes at any moment
        at = 0
        while at < len(frame) and not self._wire.is_closed:
            buffer = connection.get_buffer(-1)
            part = frame[at : at + len(buffer)]
            buffer[: len(part)] = part
            connection.buffer_updated(len(part))
            at += len(part)
        turns = 0
        while connection.in_flight and not self._wire.is_closed and turns < 3:
            await asyncio.sleep(0)
            turns += 1
        took = time.thread_time() - began
        assert took < FRAME_CPU_MAX_S, f"{took:.1f} s for {frame.hex()}"
        if self._wire.is_closed:
            connection.connection_lost(None)
            self._connection = None
        elif connection.in_flight or connection.received_bytes:
            # It waits for a parked response, or for the rest of a request.
            self._parked.append((connection, self._wire))
            self._connection = None
            if len(self._parked) >= PARKED_MAX:
                await asyncio.sleep(0)
                self.end()

    def _connect(self) -> Connection:
        self._wire = Wire(self._sock)
        connection = self._connection = Connection(self._broker.listener)
        connection.connection_made(self._wire)
        return connection

    def end(self) -> None:
        """Lose all connections."""
        for connection, _ in self._parked:
            connection.connection_lost(None)
        self._parked.clear()
        if self._connection is not None:
            self._connection.connection_lost(None)
            self._connection = None


def _drain(sock: socket.socket) -> None:
    try:
        while sock.recv(1 << 20):
            continue
    except BlockingIOError:
        return


async def _still_fine(canary: Client) -> None:
    answer = await canary.call(
        MetadataRequest(topics=None), MetadataResponse, timeout_s=CANARY_MAX_S
    )
    assert "t" in [topic.name for topic in answer.topics]
