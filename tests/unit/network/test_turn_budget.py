"""The time budget that all connections of a listener share per turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from headwater.client.connection import open_connection
from headwater.wire.framing import encode_request
from headwater_broker.api.registry import load_handlers
from headwater_broker.api.replies import Part
from headwater_broker.network.connection import Connection
from headwater_broker.network.listener import Listener
from headwater_broker.network.send_queue import SendQueue
from headwater_broker.network.turn_budget import QUIET_S, TURN_S, TurnBudget
from solo_broker import SoloBroker
from unit.network.test_data_plane import batch, produce, produce_request
from unit.network.test_parked import parked_fetch


class Loop:
    """A loop's clock, and what is to be called in the next turn."""

    def __init__(self) -> None:
        self.now = 100.0
        self.soon: list[Callable[[], None]] = []

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def next_turn(self) -> None:
        due, self.soon = self.soon, []
        for callback in due:
            callback()


def test_a_turn_is_over_after_its_time_and_the_next_one_has_its_own() -> None:
    loop = Loop()
    turn = TurnBudget(cast(asyncio.AbstractEventLoop, loop))
    assert turn.has_time()
    loop.now += TURN_S / 2
    assert turn.has_time()
    loop.now += TURN_S
    assert not turn.has_time()
    assert len(loop.soon) == 1
    loop.next_turn()
    assert turn.has_time()
    assert not loop.soon[1:]


def test_a_turn_is_quiet_for_its_first_connection_when_the_last_one_is_long_ago() -> None:
    loop = Loop()
    turn = TurnBudget(cast(asyncio.AbstractEventLoop, loop))
    quiet = []
    for pause_s in (0.0, QUIET_S * 0.9, QUIET_S * 1.1):
        loop.now += pause_s
        for _ in range(2):
            turn.has_time()
            quiet.append(turn.is_quiet)
        loop.next_turn()
    assert quiet == [True, False, False, False, True, False]


class Writer:
    """A connection whose replies may fail to be written."""

    def __init__(self, error: Exception | None = None) -> None:
        self.seen: list[str] = []
        self._error = error

    def flush_ready(self) -> None:
        self.seen.append("flushed")
        if self._error is not None:
            raise self._error

    def close(self, reason: str) -> None:
        self.seen.append(reason)


def test_replies_that_cannot_be_written_hold_back_no_others() -> None:
    loop = Loop()
    turn = TurnBudget(cast(asyncio.AbstractEventLoop, loop))
    turn.has_time()
    writers = [Writer(), Writer(OSError(24, "no descriptor")), Writer()]
    for writer in writers:
        turn.flush_at_end(writer)
    assert not any(writer.seen for writer in writers)
    loop.next_turn()
    assert [len(writer.seen) for writer in writers] == [1, 2, 1]
    assert "no descriptor" in writers[1].seen[1]
    turn.has_time()
    loop.next_turn()
    assert writers[0].seen == ["flushed"]


class Busy:
    """A connection whose requests take so many turns."""

    def __init__(self, name: str, turn: TurnBudget, loop: Loop, seen: list[str]) -> None:
        self.turns = 1
        self._name, self._turn, self._loop, self._seen = name, turn, loop, seen

    def go_on(self) -> None:
        if not self._turn.has_time():
            self._turn.put_off(cast(Connection, self))
            return
        self._seen.append(self._name)
        self._loop.now += TURN_S
        self.turns -= 1
        if self.turns:
            self._turn.put_off(cast(Connection, self))


def test_who_finds_no_time_keeps_its_place_and_one_handle_stands_for_all() -> None:
    loop = Loop()
    turn = TurnBudget(cast(asyncio.AbstractEventLoop, loop))
    seen: list[str] = []
    busy = [Busy(name, turn, loop, seen) for name in "abc"]
    busy[0].turns = 2
    turn.has_time()
    for connection in busy:
        turn.put_off(cast(Connection, connection))
    for _ in range(4):
        assert len([call for call in loop.soon if call == turn._go_on]) == 1
        loop.next_turn()
    assert seen == ["a", "b", "c", "a"]
    loop.next_turn()
    assert not loop.soon


class Transport:
    """Takes what a connection writes."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self._name = name
        self._seen = seen

    def write(self, data: bytes) -> None:
        self._seen.append(f"{self._name} writes")

    def get_extra_info(self, name: str) -> None: ...

    def set_write_buffer_limits(self, high: int) -> None: ...

    def close(self) -> None: ...


def listener_of(broker: SoloBroker, **limits: float) -> Listener:
    """Another listener of the broker, with a budget of its own."""
    loop = asyncio.get_running_loop()
    return Listener(broker.services, load_handlers(), loop, turn=TurnBudget(loop, **limits))


def accepted(listener: Listener, names: str, seen: list[str]) -> list[Connection]:
    """Connections of a listener, and what happens to them."""
    connections = []
    for name in names:
        connection = Connection(listener)
        connection.connection_made(cast(asyncio.Transport, Transport(name, seen)))
        connections.append(connection)
    return connections


def arrive(connection: Connection) -> None:
    """A produce request."""
    body = encode_request(produce_request("t", batch()), 7, 1, "me")
    frame = len(body).to_bytes(4, "big") + body
    connection.get_buffer(-1)[: len(frame)] = frame
    connection.buffer_updated(len(frame))


@pytest.mark.parametrize(
    ("quiet_s", "order"),
    [
        (1e9, ["1 came", "2 came", "3 came", "1 writes", "2 writes", "3 writes"]),
        (0.0, ["1 writes", "1 came", "2 came", "3 came", "2 writes", "3 writes"]),
    ],
)
def test_replies_of_a_busy_turn_are_written_together_once_all_are_handled(
    tmp_path: Path, quiet_s: float, order: list[str]
) -> None:
    """In a quiet turn the first connection does not wait for the others."""
    seen: list[str] = []

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            connections = accepted(listener_of(broker, quiet_s=quiet_s, turn_s=1e9), "123", seen)
            for name, connection in zip("123", connections, strict=True):
                arrive(connection)
                seen.append(f"{name} came")
            await asyncio.sleep(0)
            for connection in connections:
                connection.connection_lost(None)

    asyncio.run(run())
    assert seen == order


def test_a_client_that_closes_its_side_gets_what_its_turn_has_answered(tmp_path: Path) -> None:
    """The transport takes nothing after it."""
    seen: list[str] = []

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            (connection,) = accepted(listener_of(broker, quiet_s=1e9), "1", seen)
            arrive(connection)
            assert not connection.eof_received()
            seen.append("closed")
            await asyncio.sleep(0)
            connection.connection_lost(None)

    asyncio.run(run())
    assert seen == ["1 writes", "closed"]


def test_every_connection_gets_its_turn(tmp_path: Path) -> None:
    """One connection in a turn: the others go on in the next, and all get all their answers."""

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            listener = listener_of(broker, turn_s=0.0)
            port = await listener.start("127.0.0.1", 0)
            connections = [await open_connection("127.0.0.1", port) for _ in range(10)]
            replies = await asyncio.wait_for(
                asyncio.gather(
                    *(produce(c, "t", batch(), version=9) for c in connections for _ in range(20))
                ),
                30,
            )
            assert {reply.error_code for reply in replies} == {0}
            assert sorted(reply.base_offset for reply in replies) == list(range(200))
            for connection in connections:
                connection.close()
            await listener.close()

    asyncio.run(run())


@pytest.mark.parametrize(
    ("quiet_s", "order"), [(0.0, ["consumer", "producer"]), (1e9, ["producer", "consumer"])]
)
def test_who_waits_for_a_batch_has_it_before_its_producer_is_answered_in_a_quiet_turn(
    tmp_path: Path, quiet_s: float, order: list[str]
) -> None:
    """To write a reply wakes a client: the consumer would wait for the producer's."""
    written: list[str] = []

    names = iter(["producer", "consumer"])

    class Noted(SendQueue):
        __slots__ = ("name",)

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.name = next(names)

        def push_bytes(self, data: bytes) -> None:
            written.append(self.name)
            super().push_bytes(data)

        def push(self, parts: Sequence[Part]) -> None:
            written.append(self.name)
            super().push(parts)

    class NotedConnection(Connection):
        send_queue_class = Noted

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            loop = asyncio.get_running_loop()
            listener = Listener(
                broker.services,
                load_handlers(),
                loop,
                turn=TurnBudget(loop, quiet_s=quiet_s),
                make_connection=NotedConnection,
            )
            port = await listener.start("127.0.0.1", 0)
            producer, consumer = [await open_connection("127.0.0.1", port) for _ in range(2)]
            parked = await parked_fetch(broker, consumer)
            written.clear()
            assert (await produce(producer, "t", batch())).base_offset == 0
            assert (await parked).records
            assert written == order
            producer.close()
            consumer.close()
            await listener.close()

    asyncio.run(run())
