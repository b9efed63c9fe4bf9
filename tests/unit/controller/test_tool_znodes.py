"""Request nodes that a client removes while the controller handles them."""

from __future__ import annotations

import asyncio
import json

import pytest

from headwater.errors import ErrorCode
from headwater.ports.metadata_store import Check, Create, Delete, Node, NoNodeError
from headwater.testing.memory_store import MemoryTree
from headwater_broker.controller.zk.writer import DeposedError, remove_requests
from headwater_broker.metadata import znodes
from headwater_broker.metadata.log_dir_events import encode_log_dir_event
from unit.controller.brokers_in_memory import Cluster, until
from unit.controller.test_controller import create
from unit.controller.test_store_requests import play

PLAN = json.dumps(
    {"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2, 1]}]}
).encode()
FILED = [
    (znodes.REASSIGN_REQUEST, PLAN),
    (znodes.PREFERRED_REQUEST, PLAN),
    (f"{znodes.LOG_DIR_EVENTS}/log_dir_event_0000000007", encode_log_dir_event(1)),
    (f"{znodes.CONFIG_CHANGES}/config_change_0000000007", b'{"version":2,"entity_path":"x/y"}'),
    (znodes.delete_request_path("nowhere"), b""),
]


@pytest.mark.parametrize("is_read", [True, False], ids=["after-it-was-read", "before"])
@pytest.mark.parametrize(("path", "data"), FILED, ids=[path for path, _ in FILED])
def test_a_request_node_removed_by_hand_does_not_depose_the_controller(
    path: str, data: bytes, is_read: bool
) -> None:
    async def story(cluster: Cluster) -> None:
        one = cluster.brokers[1]
        assert await create(one, "t", (1, 2)) is ErrorCode.NONE
        active = cluster.controller()
        controller_loop, store = active.controller.controller_loop, active.store
        get, children = store.get, store.children
        seen: list[str] = []

        async def removed() -> None:
            if not seen:
                seen.append(path)
                await cluster.tree.connect().multi([Delete(path)])

        async def get_it(wanted: str) -> Node:
            if wanted != path:
                return await get(wanted)
            if not is_read:
                await removed()
            node = await get(wanted)
            await removed()
            return node

        async def list_it(wanted: str) -> list[str]:
            names = await children(wanted)
            if path == znodes.delete_request_path("nowhere") and names == ["nowhere"]:
                await removed()  # the controller does not read it
            return names

        store.get, store.children = get_it, list_it  # type: ignore[method-assign]
        await cluster.tree.connect().multi([Create(path, data)])
        await until(lambda: bool(seen))
        assert await create(one, "u", (1,)) is ErrorCode.NONE
        assert cluster.controller().controller.controller_loop is controller_loop

    play(story)


def test_only_existing_nodes_are_removed_and_not_by_a_deposed_controller() -> None:
    async def story() -> None:
        store = MemoryTree().connect()
        await store.multi([Create("/epoch", b"1"), Create("/a"), Create("/c")])
        await remove_requests(store, Check("/epoch", 0), ["/a", "/b", "/c"])
        for path in ("/a", "/c"):
            with pytest.raises(NoNodeError):
                await store.get(path)
        await store.multi([Create("/a")])
        for paths in (["/a"], ["/b", "/a"]):
            with pytest.raises(DeposedError):
                await remove_requests(store, Check("/epoch", 1), paths)
        await store.get("/a")

    asyncio.run(story())
