"""All connections together work for a bounded time per turn of the loop, and none is left out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from headwater.client.connection import open_connection
from headwater_broker.server import turns
from solo_broker import SoloBroker
from unit.server.test_data_plane import batch, produce


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
    turn = turns.Turn(cast(asyncio.AbstractEventLoop, loop))
    assert turn.has_time()
    loop.now += turns.TURN_S / 2
    assert turn.has_time()
    loop.now += turns.TURN_S
    assert not turn.has_time()
    assert len(loop.soon) == 1
    loop.next_turn()
    assert turn.has_time()
    assert not loop.soon[1:]


def test_every_connection_gets_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One connection in a turn: the others go on in the next, and all get all their answers."""
    monkeypatch.setattr(turns, "TURN_S", 0.0)

    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t")
            connections = [await open_connection("127.0.0.1", broker.port) for _ in range(10)]
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

    asyncio.run(run())
