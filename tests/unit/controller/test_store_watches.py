"""Notices of the store's watches: at once, and ever rarer the more there is to list each time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headwater.ports.metadata_store import SessionState
from headwater_broker.metadata.store_zk import FIRE_PAUSE_S, ZooKeeperStore

PATH = "/brokers/topics"


def notices(children: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int, float]:
    """Told within two pauses of a few children while these change all the time; and how often the
    children were listed meanwhile; when the next notice may come."""
    told: list[str] = []
    listed: list[str] = []

    async def run() -> float:
        store = ZooKeeperStore("nowhere:1", 1000)
        client = store._client

        def list_children(path: str, watch: Any) -> Any:
            listed.append(path)
            result = client.handler.async_result()
            result.set([str(n) for n in range(children)])
            return result

        monkeypatch.setattr(client, "exists_async", lambda path, watch: None)
        monkeypatch.setattr(client, "get_children_async", list_children)
        store._on_state(SessionState.CONNECTED)
        store.watch(PATH, told.append)
        loop = asyncio.get_running_loop()
        end = loop.time() + 2.5 * FIRE_PAUSE_S
        while loop.time() < end:
            store._on_event(PATH, "children")
            await asyncio.sleep(FIRE_PAUSE_S / 20)
        return store._next_fire[PATH] - loop.time()

    left = asyncio.run(run())
    return len(told), len(listed), left


def test_few_children_are_listed_as_often_as_they_change(monkeypatch: pytest.MonkeyPatch) -> None:
    told, _listed, left = notices(3, monkeypatch)
    assert told >= 2
    assert left < 2 * FIRE_PAUSE_S


def test_the_more_children_there_are_the_rarer_they_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told, listed, left = notices(1000, monkeypatch)
    assert told <= 2  # the first when their number is not known yet
    assert listed <= 3
    assert 0.2 < left <= 1.0
    assert notices(1_000_000, monkeypatch)[2] <= 1.0
