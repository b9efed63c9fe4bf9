"""A listener's limits: socket buffers, number of connections, idle time, requests in flight."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
from pathlib import Path

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.config.connection_overrides import connection_overrides
from headwater.errors import UsageError
from headwater.wire.apis.k01_fetch import PartitionData
from headwater.wire.apis.k03_metadata import MetadataRequest, MetadataResponse
from headwater.wire.apis.k18_api_versions import ApiVersionsRequest
from headwater.wire.framing import encode_request
from headwater.wire.schema import Message
from headwater_broker.api.registry import load_handlers
from headwater_broker.app.data_plane import build_listener
from headwater_broker.network.connection import Connection as ServedConnection
from headwater_broker.network.listener import Listener
from solo_broker import SoloBroker
from unit.network.test_data_plane import batch, fetch, fetch_request, produce, serve
from unit.network.test_parked import parked_fetch


def buffers(folder: Path, **properties: str) -> list[int]:
    """Send and receive buffer of an accepted connection."""
    accepted: list[socket.socket] = []

    class Noted(ServedConnection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(transport.get_extra_info("socket"))
            super().connection_made(transport)

    async def run() -> list[int]:
        async with SoloBroker(folder, **properties) as broker:
            listener = build_listener(
                broker.dynamic, broker.services, "OTHER", make_connection=Noted
            )
            port = await listener.start("127.0.0.1", 0)
            connection = await open_connection("127.0.0.1", port)
            found = [
                accepted[0].getsockopt(socket.SOL_SOCKET, option)
                for option in (socket.SO_SNDBUF, socket.SO_RCVBUF)
            ]
            connection.close()
            await listener.close()
            return found

    return asyncio.run(run())


def test_buffers_are_the_systems_unless_they_are_set(tmp_path: Path) -> None:
    default = buffers(tmp_path / "a")
    asked = {"socket_send_buffer_bytes": "30000", "socket_receive_buffer_bytes": "40000"}
    given = buffers(tmp_path / "b", **asked)
    assert given == [60_000, 80_000]  # Linux doubles what is asked for
    assert given[0] != default[0] and given[1] != default[1]


async def closed(connection: Connection) -> bool:
    """True when the broker closed it; a request it still serves is answered."""
    try:
        await connection.call(MetadataRequest(topics=()), MetadataResponse)
    except ConnectionError:
        return True
    return False


async def connect_from(port: int, host: str) -> bool:
    """One connection from a loopback address of its own; False when the broker refused it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(host, 0))
    body = encode_request(ApiVersionsRequest(), 0, 1, None)
    try:
        writer.write(len(body).to_bytes(4, "big") + body)
        served = bool(await reader.read(4))
    except ConnectionError:
        served = False
    KEPT.append(writer)
    return served


KEPT: list[asyncio.StreamWriter] = []


def test_connections_per_address_are_bounded_with_exceptions(tmp_path: Path) -> None:
    async def run() -> None:
        limits = {
            "max_connections_per_ip": "1",
            "max_connections_per_ip_overrides": "127.0.0.3:2,127.0.0.4:0",
        }
        async with SoloBroker(tmp_path, **limits) as broker:
            assert [await connect_from(broker.port, "127.0.0.1") for _ in range(2)] == [True, False]
            assert await connect_from(broker.port, "127.0.0.2")
            of_three = [await connect_from(broker.port, "127.0.0.3") for _ in range(3)]
            assert of_three == [True, True, False]
            assert not await connect_from(broker.port, "127.0.0.4")
            KEPT[0].close()
            while broker.listener.connections_from("127.0.0.1"):
                await asyncio.sleep(0)
            assert await connect_from(broker.port, "127.0.0.1"), "the place is free again"
        for writer in KEPT:
            writer.close()
        KEPT.clear()

    asyncio.run(run())


def test_exceptions_of_addresses_change_while_the_broker_runs(tmp_path: Path) -> None:
    """As in Kafka for all brokers or one, for new connections: those there stay."""
    key = "max.connections.per.ip.overrides"

    async def run() -> None:
        limits = "127.0.0.3:1,127.0.0.5:1"
        async with SoloBroker(tmp_path, **{key.replace(".", "_"): limits}) as broker:
            assert [await connect_from(broker.port, "127.0.0.3") for _ in range(2)] == [True, False]
            broker.configure(all_brokers={key: "127.0.0.3:2"})
            assert [await connect_from(broker.port, "127.0.0.3") for _ in range(2)] == [True, False]
            broker.configure(all_brokers={key: "127.0.0.3:2"}, broker_1={key: "127.0.0.3:3"})
            assert [await connect_from(broker.port, "127.0.0.3") for _ in range(2)] == [True, False]
            broker.configure(all_brokers={key: "127.0.0.3:0"})
            assert not await connect_from(broker.port, "127.0.0.3")
            assert broker.listener.connections_from("127.0.0.3") == 3, "open ones stay"
            assert [await connect_from(broker.port, "127.0.0.5") for _ in range(2)] == [True, True]
            broker.configure(all_brokers={key: "not-an-address:4"})
            assert not await connect_from(broker.port, "127.0.0.5"), "the file's, as before"
        for writer in KEPT:
            writer.close()
        KEPT.clear()

    asyncio.run(run())


@pytest.mark.parametrize(
    "row", ["127.0.0.1", "127.0.0.1:many", ":3", "127.0.0.1:-1", "localhost:3"]
)
def test_a_bad_exception_is_told_at_the_start(row: str) -> None:
    with pytest.raises(UsageError, match="address:count"):
        connection_overrides((row,))


def test_an_exception_names_an_address_in_any_of_its_forms() -> None:
    rows = ("[0:0:0:0:0:0:0:1]:2", "::2:3", "10.0.0.1:4")
    assert connection_overrides(rows) == {"::1": 2, "::2": 3, "10.0.0.1": 4}


def test_connections_of_the_broker_are_bounded_over_all_listeners(tmp_path: Path) -> None:
    async def run() -> None:
        async with SoloBroker(tmp_path, max_connections="2") as broker:
            second = build_listener(broker.dynamic, broker.services, "OTHER")
            port = await second.start("127.0.0.1", 0)
            assert [await connect_from(p, "127.0.0.1") for p in (broker.port, port)] == [True] * 2
            third = asyncio.create_task(connect_from(port, "127.0.0.1"))
            await waiting(second, 1)
            KEPT[0].close()
            while broker.services.meters.connections > 1:
                await asyncio.sleep(0)
            assert not third.done(), "the other listener looks when it sweeps"
            second.sweep()
            assert await third
            await second.close()
        KEPT.clear()

    asyncio.run(run())


async def waiting(listener: Listener, count: int) -> None:
    while listener.waiting != count:
        await asyncio.sleep(0)


def test_connections_beyond_the_brokers_limit_wait_in_turn_for_a_place(tmp_path: Path) -> None:
    """As at Kafka's acceptor; they were closed."""

    async def run() -> None:
        async with SoloBroker(tmp_path, max_connections="1") as broker:
            listener = broker.listener
            first = await open_connection("127.0.0.1", broker.port)
            comes = [asyncio.create_task(open_connection("127.0.0.1", broker.port))]
            await waiting(listener, 1)
            comes.append(asyncio.create_task(open_connection("127.0.0.1", broker.port)))
            await waiting(listener, 2)
            assert not await closed(first) and not any(task.done() for task in comes)
            first.close()
            second = await comes[0]
            assert not await closed(second) and not comes[1].done()
            broker.configure(all_brokers={"max.connections": "2"})
            third = await comes[1]
            assert not await closed(third) and not await closed(second)
            last = asyncio.create_task(open_connection("127.0.0.1", broker.port))
            await waiting(listener, 1)
            await listener.close()
            with pytest.raises(OSError):
                await last
            assert not listener.waiting

    asyncio.run(run())


def test_only_so_many_connections_wait(tmp_path: Path) -> None:
    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            listener = Listener(
                broker.services,
                load_handlers(),
                asyncio.get_running_loop(),
                connections_max=0,
                waiting_max=1,
            )
            port = await listener.start("127.0.0.1", 0)
            one = asyncio.create_task(open_connection("127.0.0.1", port))
            await waiting(listener, 1)
            with pytest.raises(OSError):
                await open_connection("127.0.0.1", port)
            assert not one.done()
            listener.limit_connections(broker.config.values)
            (await one).close()
            await listener.close()

    asyncio.run(run())


def test_a_smaller_limit_closes_the_idlest_connections(tmp_path: Path) -> None:
    """As Kafka's does; those of an address stay."""

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            there = [await open_connection("127.0.0.1", broker.port) for _ in range(4)]
            for at in (2, 0, 3):  # the second is the idlest, then the third
                broker.listener.sweep()
                assert not await closed(there[at])
            broker.configure(all_brokers={"max.connections.per.ip": "1"})
            assert len(broker.listener.connections) == 4
            broker.configure(all_brokers={"max.connections": "3"})
            broker.configure(all_brokers={"max.connections": "2"})
            assert [await closed(c) for c in there] == [False, True, True, False]
            for connection in there:
                connection.close()

    asyncio.run(run())


def test_idle_connections_are_closed_but_not_those_that_wait(tmp_path: Path) -> None:
    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            idle, waiting, active = [
                await open_connection("127.0.0.1", broker.port) for _ in range(3)
            ]
            parked = await parked_fetch(broker, waiting)
            for _ in range(broker.listener.idle.sweeps + 1):
                assert not await closed(active)
                broker.listener.sweep()
            assert await closed(idle)
            assert not await closed(active)
            await produce(active, "t", batch())
            assert (await parked).high_watermark == 1
            for connection in (waiting, active):
                connection.close()

    asyncio.run(run())


def test_a_closed_connection_owes_no_reply(tmp_path: Path) -> None:
    """A client that reads nothing would keep its descriptor: the sweep spares who waits."""

    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        parked = await parked_fetch(broker, c)
        (served,) = broker.listener.connections
        assert served.in_flight == 1
        served.close("for a reason")
        assert served.in_flight == 0
        with pytest.raises(ConnectionError):
            await parked

    serve(tmp_path, scenario)


def test_no_connection_is_too_idle_where_the_limit_is_off(tmp_path: Path) -> None:
    async def run() -> None:
        async with SoloBroker(tmp_path, connections_max_idle_ms="-1") as broker:
            idle = await open_connection("127.0.0.1", broker.port)
            for _ in range(10_000):
                broker.listener.sweep()
            assert not await closed(idle)
            idle.close()
        async with SoloBroker(tmp_path, connections_max_idle_ms="0") as broker:
            assert broker.listener.idle.interval_s > 0, "no sweep without a pause"

    asyncio.run(run())


def test_a_parked_reply_that_came_late_leaves_time_to_ask_again(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        waiting = await open_connection("127.0.0.1", broker.port)
        parked = await parked_fetch(broker, waiting)
        for _ in range(broker.listener.idle.sweeps + 1):
            assert not await closed(c)
            broker.listener.sweep()
        await produce(c, "t", batch())
        await parked
        for _ in range(broker.listener.idle.sweeps):
            assert not await closed(c)
            broker.listener.sweep()
        assert waiting.is_open
        assert not await closed(waiting)
        waiting.close()

    serve(tmp_path, scenario)


SLOW = {"socket_send_buffer_bytes": "30000", "connections_max_idle_ms": "100000"}
"""Little is with the kernel; the idle time is ten sweeps."""


async def ask_and_not_read(
    broker: SoloBroker, request: Message, version: int, times: int = 1
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, ServedConnection]:
    """A client whose replies are too much for the kernel; its connection as the broker sees it."""
    known = set(broker.listener.connections)
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port, limit=1 << 14)
    body = encode_request(request, version, 1, None)
    writer.write((len(body).to_bytes(4, "big") + body) * times)
    while not (new := set(broker.listener.connections) - known):
        await asyncio.sleep(0)
    (served,) = new
    while not served.unsent_bytes:
        await asyncio.sleep(0)
    return reader, writer, served


def test_a_slow_reader_is_not_idle(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        for _ in range(4):
            await produce(c, "t", batch(1000, 1000))
        request = fetch_request("t", 0, partition_max_bytes=50 << 20)
        reader, writer, served = await ask_and_not_read(broker, request, 11)
        left = int.from_bytes(await reader.readexactly(4), "big")
        sweeps = 0
        while before := served.unsent_bytes:
            while served.unsent_bytes == before:
                left -= len(await reader.readexactly(min(left, 1 << 14)))
            broker.listener.sweep()
            sweeps += 1
        assert sweeps > 2 * broker.listener.idle.sweeps
        assert len(await reader.readexactly(left)) == left
        writer.close()

    serve(tmp_path, scenario, **SLOW)


def test_a_reader_that_stands_still_is_idle(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        _, writer, served = await ask_and_not_read(broker, ApiVersionsRequest(), 0, 10_000)
        sweeps = 0
        while served in broker.listener.connections:
            assert not await closed(c)
            broker.listener.sweep()
            sweeps += 1
        assert sweeps > broker.listener.idle.sweeps
        writer.close()

    serve(tmp_path, scenario, **SLOW)


def test_no_more_is_read_while_too_many_requests_are_in_flight(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        broker.create_topic("t")
        other = await open_connection("127.0.0.1", broker.port)
        size, purgatory = len(batch()), broker.services.purgatories.fetch

        def ask(batches: int) -> asyncio.Task[PartitionData]:
            wanted = fetch(c, "t", 0, max_wait_ms=2**31 - 1, min_bytes=batches * size)
            return asyncio.create_task(wanted)

        asks = [ask(1), ask(2)]
        while purgatory.parked < 2:
            await asyncio.sleep(0)
        (served,) = [x for x in broker.listener.connections if x.in_flight]
        asks += [ask(3), ask(4)]
        for _ in range(3):
            assert not await closed(other), "others are served meanwhile"
        assert purgatory.parked == served.in_flight == 2
        assert served.received_bytes == 0, "they are not even read"
        for done in range(4):
            await produce(other, "t", batch())
            assert (await asks[done]).high_watermark == done + 1
        other.close()

    serve(tmp_path, scenario, queued_max_requests="2")


def test_an_error_nobody_foresaw_closes_only_its_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(*_: object) -> MetadataResponse:
        raise RuntimeError("a defect")

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            row = broker.listener.rows[MetadataRequest.api_key]
            hit = await open_connection("127.0.0.1", broker.port)
            other = await open_connection("127.0.0.1", broker.port)
            broker.listener.rows[row.key] = dataclasses.replace(row, handler=breaks)
            with pytest.raises(ConnectionError):  # this version's reply has no error of its own
                await hit.call(MetadataRequest(topics=()), MetadataResponse, version=12)
            broker.listener.rows[row.key] = row
            assert not await closed(other)
            other.close()

    asyncio.run(run())
    assert "a defect" in caplog.text
