"""A listener's own settings: buffers of the sockets it accepts."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

from headwater.client.connection import open_connection
from solo_broker import SoloBroker


def buffers(folder: Path, **properties: str) -> list[int]:
    """Send and receive buffer of an accepted connection."""

    async def run() -> list[int]:
        async with SoloBroker(folder, **properties) as broker:
            connection = await open_connection("127.0.0.1", broker.port)
            (accepted,) = broker.listener._connections
            sock = accepted._transport.get_extra_info("socket")
            found = [
                sock.getsockopt(socket.SOL_SOCKET, option)
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
            ]
            connection.close()
            return found

    return asyncio.run(run())


def test_buffers_are_the_systems_unless_they_are_set(tmp_path: Path) -> None:
    default = buffers(tmp_path / "a")
    asked = {"socket_send_buffer_bytes": "30000", "socket_receive_buffer_bytes": "40000"}
    given = buffers(tmp_path / "b", **asked)
    assert given == [60_000, 80_000]  # Linux doubles what is asked for
    assert given[0] != default[0] and given[1] != default[1]
