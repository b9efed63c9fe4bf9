"""The send queue: order, files, and connections that break or do not read."""

from __future__ import annotations

import asyncio
import selectors
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.wire.framing import encode_request
from headwater_broker.api.registry import load_handlers
from headwater_broker.api.replies import FilePart
from headwater_broker.network.connection import Connection as ServedConnection
from headwater_broker.network.listener import Listener
from headwater_broker.network.send_queue import READ_BYTES, SendQueue, ShortFileError
from solo_broker import SoloBroker
from unit.network.test_data_plane import batch, fetch, fetch_request, produce, serve


class OneEnd:
    """As much of a transport as an queue needs."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def get_extra_info(self, _name: str) -> socket.socket:
        return self.sock

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def write(self, data: bytes) -> None:
        raise AssertionError(f"{len(data)} bytes are written to a broken connection")


@pytest.mark.parametrize("head", [b"", b"the reply's head"])
@pytest.mark.parametrize("cut_short", [False, True])
def test_a_broken_connection_ends_the_sending_at_once(
    tmp_path: Path, head: bytes, cut_short: bool
) -> None:
    """The transport tells of the loss in a later turn: a loop here would never come to it."""
    path = tmp_path / "segment"
    path.write_bytes(b"" if cut_short else bytes(1000))
    told: list[Exception] = []

    def fail(error: Exception) -> None:
        told.append(error)
        assert len(told) == 1, "the queue does not stop"

    async def run() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs, open(path, "rb") as file:
            if not cut_short:
                theirs.close()
            transport = cast(Any, OneEnd(ours))
            queue = SendQueue(transport, asyncio.get_running_loop(), lambda: None, fail)
            part = FilePart(file.fileno(), 0, 1000).own()
            queue.push([head, part] if head else [part])
            assert len(told) == 1
            assert queue.closed and queue.queued_bytes == 0
            assert not part.owned, "its descriptor is released"
            late = FilePart(file.fileno(), 0, 1000).own()
            queue.push([late])
            assert not late.owned

    asyncio.run(run())


class Wrapped:
    """A transport that changes the bytes on their way, as TLS does: it has no socket to give.
    Its buffer takes `room` bytes until `flush`."""

    def __init__(self, room: int) -> None:
        self.sent = bytearray()
        self.queue: WrappedQueue
        self._room = room
        self._buffered = 0

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0

    def write(self, data: bytes) -> None:
        self.sent += data
        self._buffered += len(data)
        if self._buffered >= self._room:
            self.queue.pause()

    def flush(self) -> None:
        self._buffered = 0
        self.queue.resume()


class WrappedQueue(SendQueue):
    __slots__ = ()
    allows_sendfile = False


def wrapped(room: int, failed: list[Exception]) -> Wrapped:
    transport = Wrapped(room)
    loop = asyncio.get_running_loop()
    transport.queue = WrappedQueue(cast(Any, transport), loop, lambda: None, failed.append)
    return transport


def test_slices_are_read_and_written_where_sendfile_is_not_allowed(tmp_path: Path) -> None:
    path, size = tmp_path / "segment", 3 * READ_BYTES + 5
    path.write_bytes(bytes(n % 251 for n in range(size)))

    async def run() -> None:
        failed: list[Exception] = []
        transport = wrapped(2 * READ_BYTES, failed)
        queue = transport.queue
        with open(path, "rb") as file:
            queue.push([b"head", FilePart(file.fileno(), 1, size - 2), b"tail"])
        assert len(transport.sent) == 4 + 2 * READ_BYTES, "no more than the transport takes"
        assert queue.queued_bytes == 4 + size - 2 + 4 - len(transport.sent)
        transport.flush()
        assert bytes(transport.sent) == b"head" + path.read_bytes()[1:-1] + b"tail"
        assert queue.is_idle and not queue.queued_bytes and not failed

    asyncio.run(run())


def test_a_slice_that_is_read_and_ends_too_early_breaks_the_connection(tmp_path: Path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(bytes(10))

    async def run() -> None:
        failed: list[Exception] = []
        queue = wrapped(1 << 20, failed).queue
        with open(path, "rb") as file:
            part = FilePart(file.fileno(), 0, 11).own()
        queue.push([b"head", part])
        assert [type(error) for error in failed] == [ShortFileError]
        assert queue.closed and not part.owned

    asyncio.run(run())


def test_a_listener_brings_its_own_connections_and_send_queues(tmp_path: Path) -> None:
    """The seam for TLS: another class, and nothing else changes."""

    class WrappedConnection(ServedConnection):
        send_queue_class = WrappedQueue

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        for _ in range(4):
            await produce(c, "t", batch(1000, 1000))
        loop = asyncio.get_running_loop()
        listener = Listener(
            broker.services, load_handlers(), loop, name="SSL", make_connection=WrappedConnection
        )
        other = await open_connection("127.0.0.1", await listener.start("127.0.0.1", 0))
        assert [type(served) for served in listener.connections] == [WrappedConnection]
        read = [await fetch(by, "t", 0, partition_max_bytes=50 << 20) for by in (c, other)]
        assert read[0].records and bytes(read[0].records) == bytes(read[1].records or b"")
        other.close()
        await listener.close()

    serve(tmp_path, scenario)


class CountingSelector(selectors.DefaultSelector):
    """Counts the turns of the loop that waits by it."""

    turns = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self.turns += 1
        return super().select(timeout)


@pytest.mark.parametrize("peer", ["says nothing", "does not read", "has closed its side"])
def test_a_connection_on_which_nothing_moves_costs_no_turns_of_the_loop(
    tmp_path: Path, peer: str
) -> None:
    selector = CountingSelector()

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            producer = await open_connection("127.0.0.1", broker.port)
            for _ in range(10):
                await produce(producer, "t", batch(900, 1000))
            with socket.create_connection(("127.0.0.1", broker.port)) as sock:
                if peer != "says nothing":
                    request = fetch_request("t", 0, partition_max_bytes=50 << 20)
                    body = encode_request(request, 11, 1, None)
                    sock.sendall(len(body).to_bytes(4, "big") + body)
                await asyncio.sleep(0.2)
                if peer == "has closed its side":
                    sock.shutdown(socket.SHUT_WR)
                await asyncio.sleep(0.1)
                before = selector.turns
                await asyncio.sleep(0.2)
                assert selector.turns - before < 20, "a busy loop makes thousands"
            producer.close()

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(run())
