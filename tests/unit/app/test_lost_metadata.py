"""A broker with data that finds an empty metadata store does not found a new cluster over it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from headwater.errors import UsageError
from headwater.ports.files import Files
from headwater.ports.metadata_store import Create, NoNodeError
from headwater.testing.memory_files import MemoryFiles
from headwater.testing.memory_store import MemoryStore, MemoryTree
from headwater_broker.app.config import from_properties
from headwater_broker.app.environment import Environment
from headwater_broker.app.lifecycle import build
from headwater_broker.log.checkpoint_files import encode_properties
from headwater_broker.metadata import znodes
from unit.controller.brokers_in_memory import CountingEntropy

META = {"version": "1", "broker.id": "7", "cluster.id": "old-cluster"}


class ReachedError(Exception):
    """The start has come to the parts of the broker."""


class Parts:
    """What a broker has of its machine: only files, store and entropy; the next part is the end."""

    def __init__(self, files: Files, store: MemoryStore) -> None:
        self.files = files
        self.store = store
        self.entropy = CountingEntropy()

    def __getattr__(self, name: str) -> Any:
        raise ReachedError(name)


def folder(files: MemoryFiles, path: str, *logs: str, meta: dict[str, str] = META) -> None:
    files.write_atomic(f"{path}/meta.properties", encode_properties(meta))
    for log in logs:
        files.open(f"{path}/{log}/00000000000000000000.log")


async def start(files: Files, store: MemoryStore, **more: str) -> None:
    properties = {
        "broker.id": "7",
        "listeners": "PLAINTEXT://localhost:9092",
        "log.dirs": "/a,/b",
        "zookeeper.connect": "zoo:2181/kafka",
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    await build(from_properties(properties), cast(Environment, Parts(files, store)), lambda _: None)


async def stored_cluster_id(tree: MemoryTree) -> str | None:
    try:
        return znodes.decode_cluster_id((await tree.connect().get(znodes.CLUSTER_ID)).data)
    except NoNodeError:
        return None


@pytest.mark.parametrize("configured", [{}, {"cluster_id": "old-cluster"}])
def test_an_empty_store_is_refused_over_data(configured: dict[str, str]) -> None:
    async def story() -> None:
        files, tree = MemoryFiles(), MemoryTree()
        folder(files, "/a", "orders-0", "orders-12", "orders-3.0123-delete")
        folder(files, "/b")
        with pytest.raises(UsageError) as refused:
            await start(files, tree.connect(), **configured)
        text = str(refused.value)
        for part in (
            "zoo:2181/kafka",
            "broker 7",
            "old-cluster",
            "/a (2 partitions)",
            "zookeeper.connect",
            "restore ZooKeeper's data",
            "move the folders away",
        ):
            assert part in text
        assert "\n" not in text and "/b" not in text
        assert await stored_cluster_id(tree) is None, "nothing was begun in the store"

    asyncio.run(story())


def test_another_broker_that_came_first_does_not_hide_it() -> None:
    """A broker without data has begun the cluster in the empty store, under its old id."""

    async def story() -> None:
        files, tree = MemoryFiles(), MemoryTree()
        folder(files, "/a", "orders-0")
        store = tree.connect()
        await store.ensure_path("/cluster")
        await store.ensure_path("/headwater/lives/8")
        data = znodes.encode_cluster_id("old-cluster")
        await store.multi([Create(znodes.CLUSTER_ID, data)])
        with pytest.raises(UsageError, match="does not know broker 7"):
            await start(files, tree.connect())

    asyncio.run(story())


def test_a_store_that_knows_the_broker_is_joined() -> None:
    async def story() -> None:
        files, tree = MemoryFiles(), MemoryTree()
        folder(files, "/a", "orders-0")
        await tree.connect().ensure_path("/headwater/lives/7")
        with pytest.raises(ReachedError):
            await start(files, tree.connect())
        assert await stored_cluster_id(tree) == "old-cluster"

    asyncio.run(story())


def test_folders_without_partitions_lose_nothing_and_give_their_cluster_id() -> None:
    async def story() -> None:
        files, tree = MemoryFiles(), MemoryTree()
        folder(files, "/b")
        with pytest.raises(ReachedError):
            await start(files, tree.connect())
        assert await stored_cluster_id(tree) == "old-cluster"

    asyncio.run(story())


def test_a_folder_that_cannot_be_read_is_left_to_the_start(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        files, tree = MemoryFiles(), MemoryTree()
        folder(files, "/a", "orders-0")
        files.failing_prefix = "/a"
        with pytest.raises(ReachedError):
            await start(files, tree.connect())

    asyncio.run(story())
