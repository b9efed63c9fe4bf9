"""Connections that come too fast are served later or closed (KIP-612); over real sockets."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from headwater.client.connection import Connection as Client
from headwater.testing.clocks import ManualClock
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest
from headwater.wire.framing import encode_request
from headwater_broker.app.data_plane import build_listener
from headwater_broker.network.connection import Connection
from headwater_broker.network.listener import Listener
from solo_broker import SoloBroker
from unit.network.test_data_plane import serve

TWO = {"quota_window_num": "2"}
"""Two windows of a second: a rate is at least what a second sees."""

Scenario = Callable[[SoloBroker, Listener, list[int]], Awaitable[None]]


class Noted(Connection):
    """Tells the listener's test how it was muted."""

    muted: list[int]
    is_made = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.is_made = True

    def mute(self, delay_ms: int) -> None:
        # Python 3.11.2 begins to read after `connection_made`, whatever was paused in it.
        assert self.is_made and not self.received_bytes
        self.muted.append(delay_ms)
        super().mute(delay_ms)


def listening(tmp_path: Path, scenario: Scenario, **properties: str) -> None:
    """Run the scenario with a listener for which all connections come at the same moment."""

    async def run(broker: SoloBroker, _: Client) -> None:
        clock = ManualClock()
        clock.advance(int(time.monotonic() * 1000) + 1)
        muted: list[int] = []
        kind = type("Muted", (Noted,), {"muted": muted})
        services = dataclasses.replace(broker.services, clock=clock)
        listener = build_listener(broker.dynamic, services, "OTHER", make_connection=kind)
        await listener.start("127.0.0.1", 0)
        await scenario(broker, listener, muted)
        await listener.close()

    serve(tmp_path, run, **TWO, **properties)


async def connect(port: int, host: str = "127.0.0.1") -> tuple[bytes, float]:
    """What a new connection is answered, and after how long."""
    began = asyncio.get_running_loop().time()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    body = encode_request(ApiVersionsRequest(), 0, 1, None)
    try:
        writer.write(len(body).to_bytes(4, "big") + body)
        answer = await reader.read(4)
    except ConnectionError:
        answer = b""
    writer.close()
    return answer, asyncio.get_running_loop().time() - began


def test_connections_of_an_address_that_come_too_fast_are_closed_later(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, listener: Listener, muted: list[int]) -> None:
        broker.limit_clients(**{"ips_127.0.0.9": {"connection_creation_rate": "2"}})
        for _ in range(2):
            answer, _s = await connect(listener.port, "127.0.0.9")
            assert answer and not muted
        answer, took_s = await connect(listener.port, "127.0.0.9")
        assert not answer and len(muted) == 1 and took_s >= muted[0] / 1000 > 0.4
        assert (await connect(listener.port, "127.0.0.8"))[0]
        assert not muted[1:]

    listening(tmp_path, scenario)


def test_connections_of_the_broker_that_come_too_fast_are_served_later(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, listener: Listener, muted: list[int]) -> None:
        found = [await connect(listener.port) for _ in range(5)]
        assert all(answer for answer, _ in found)
        assert len(muted) == 1 and found[4][1] >= muted[0] / 1000 >= 0.2
        broker.configure(all_brokers={"max.connection.creation.rate": "1000"})
        assert (await connect(listener.port))[0] and not muted[1:]

    listening(tmp_path, scenario, max_connection_creation_rate="4")
