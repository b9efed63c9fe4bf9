"""Notifications of the store's watches: at once, and the rarer the more children there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from kazoo.protocol.states import KazooState

from headwater_broker.metadata.store_zk import FIRE_PAUSE_S, ZooKeeperStore, fire_pause_s
from headwater_broker.metadata.zk_handler import DirectCallbackHandler

PATH = "/brokers/topics"


class ChangingNode:
    """kazoo's client, connected, with one node whose children change all the time."""

    def __init__(self, children: int) -> None:
        self.handler = DirectCallbackHandler()
        self.children = [str(n) for n in range(children)]
        self.listed = 0
        self.watches: list[Callable[[Any], None]] = []

    def add_listener(self, notify: Callable[[str], None]) -> None:
        notify(KazooState.CONNECTED)

    def start_async(self) -> None:
        pass

    def exists_async(self, path: str, watch: Callable[[Any], None]) -> Any:
        return self._answer(None)

    def get_children_async(self, path: str, watch: Callable[[Any], None]) -> Any:
        self.listed += 1
        self.watches.append(watch)
        return self._answer(self.children)

    def change(self) -> None:
        watches, self.watches = self.watches, []
        for notify in watches:
            notify(None)

    def _answer(self, value: Any) -> Any:
        result = self.handler.async_result()
        result.set(value)
        return result


def notices(children: int) -> tuple[int, int]:
    """Notifications and listings within two pauses of a few children."""
    told: list[str] = []

    async def run() -> int:
        client = ChangingNode(children)
        store = ZooKeeperStore("nowhere:1", 1000, cast(Any, client))
        await store.start()
        store.watch(PATH, told.append)
        loop = asyncio.get_running_loop()
        end = loop.time() + 2.5 * FIRE_PAUSE_S
        while loop.time() < end:
            client.change()
            await asyncio.sleep(FIRE_PAUSE_S / 20)
        return client.listed

    listed = asyncio.run(run())
    return len(told), listed


def test_few_children_are_listed_as_often_as_they_change() -> None:
    assert notices(3)[0] >= 2


def test_the_more_children_there_are_the_rarer_they_are_listed() -> None:
    told, listed = notices(1000)
    assert told <= 2  # the first when their number is not known yet
    assert listed <= 3


def test_the_pause_grows_with_the_children_up_to_a_second() -> None:
    assert fire_pause_s(0) == FIRE_PAUSE_S
    assert fire_pause_s(3) < 2 * FIRE_PAUSE_S
    assert 0.2 < fire_pause_s(1000) < 1.0
    assert fire_pause_s(1_000_000) == 1.0
