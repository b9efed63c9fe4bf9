"""The outbox: what happens when the other end breaks, or does not read."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any, cast

import pytest

from headwater.client.connection import Connection
from headwater.wire.framing import encode_request
from headwater_broker.api.replies import FilePart
from headwater_broker.network.send_queue import Outbox
from solo_broker import SoloBroker
from unit.network.test_data_plane import batch, fetch_request, produce, serve


class OneEnd:
    """As much of a transport as an outbox needs."""

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
        assert len(told) == 1, "told again: the outbox does not stop"

    async def run() -> None:
        ours, theirs = socket.socketpair()
        with ours, theirs, open(path, "rb") as file:
            if not cut_short:
                theirs.close()
            transport = cast(Any, OneEnd(ours))
            outbox = Outbox(transport, asyncio.get_running_loop(), lambda: None, fail)
            part = FilePart(file.fileno(), 0, 1000).own()
            outbox.push([head, part] if head else [part])
            assert len(told) == 1
            assert outbox.closed and outbox.queued_bytes == 0
            assert not part.owned, "its descriptor is released"
            late = FilePart(file.fileno(), 0, 1000).own()
            outbox.push([late])
            assert not late.owned

    asyncio.run(run())


@pytest.mark.parametrize("peer", ["says nothing", "does not read", "has closed its side"])
def test_a_connection_on_which_nothing_moves_costs_no_turns_of_the_loop(
    tmp_path: Path, peer: str
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        for _ in range(10):
            await produce(c, "t", batch(900, 1000))
        turns = 0
        selector = cast(Any, asyncio.get_running_loop())._selector
        select = selector.select

        def counted(timeout: float | None = None) -> Any:
            nonlocal turns
            turns += 1
            return select(timeout)

        selector.select = counted
        with socket.create_connection(("127.0.0.1", broker.port)) as sock:
            if peer != "says nothing":
                request = fetch_request("t", 0, partition_max_bytes=50 << 20)
                body = encode_request(request, 11, 1, None)
                sock.sendall(len(body).to_bytes(4, "big") + body)
            await asyncio.sleep(0.2)
            if peer == "has closed its side":
                sock.shutdown(socket.SHUT_WR)
            await asyncio.sleep(0.1)
            turns = 0
            await asyncio.sleep(0.2)
            assert turns < 20, "a busy loop makes thousands"
        selector.select = select

    serve(tmp_path, scenario)
