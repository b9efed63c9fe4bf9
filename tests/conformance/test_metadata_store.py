"""The contract of the metadata store: one suite over the double in memory and a real ZooKeeper."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance.zookeepers import running_zookeeper
from headwater.errors import UsageError
from headwater.ports.metadata_store import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    MetadataStore,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Set,
)
from headwater.testing.memory_store import MemoryTree
from headwater_broker.metadata.store_zk import ZooKeeperStore, split_chroot

SESSION_TIMEOUT_MS = 60_000
"""No test waits for a session timeout, and a machine that is busy for seconds must not end one."""
CONNECT_MS = 120_000


@dataclass
class Ensemble:
    """Creates sessions on one ensemble. Every test has a tree of its own."""

    connect: Callable[[], Awaitable[MetadataStore]]


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder: Path = tmp_path_factory.mktemp("zookeeper")
    with running_zookeeper(folder) as servers:
        yield servers
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.integration)])
def ensemble(request: pytest.FixtureRequest) -> Ensemble:
    if request.param == "memory":
        tree = MemoryTree()

        async def in_memory() -> MetadataStore:
            return tree.connect()

        return Ensemble(in_memory)
    servers = request.getfixturevalue("zookeeper")
    chroot = "/" + request.node.name.replace("[", "-").replace("]", "")

    async def over_zookeeper() -> MetadataStore:
        store = ZooKeeperStore(servers + chroot, SESSION_TIMEOUT_MS)
        await store.start(CONNECT_MS)
        return store

    return Ensemble(over_zookeeper)


def story(ensemble: Ensemble, tell: Callable[..., Awaitable[None]], sessions: int = 1) -> None:
    async def run() -> None:
        stores = [await ensemble.connect() for _ in range(sessions)]
        try:
            await tell(*stores)
        finally:
            for store in stores:
                await store.close()  # type: ignore[attr-defined]

    asyncio.run(run())


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(1000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("did not come true")


def test_create_get_set_delete_with_versions(ensemble: Ensemble) -> None:
    async def tell(store: MetadataStore) -> None:
        assert await store.multi([Create("/a", b"one")]) == ["/a"]
        node = await store.get("/a")
        assert (node.data, node.version, node.ephemeral_owner) == (b"one", 0, 0)
        [changed] = await store.multi([Set("/a", b"two", 0)])
        assert isinstance(changed, Node)
        assert (changed.version, changed.czxid) == (1, node.czxid)
        assert (await store.get("/a")).data == b"two"
        with pytest.raises(BadVersionError):
            await store.multi([Set("/a", b"three", 0)])
        with pytest.raises(BadVersionError):
            await store.multi([Delete("/a", 0)])
        await store.multi([Delete("/a", 1)])
        with pytest.raises(NoNodeError):
            await store.get("/a")
        with pytest.raises(NoNodeError):
            await store.children("/a")

    story(ensemble, tell)


def test_many_nodes_are_read_at_once(ensemble: Ensemble) -> None:
    async def tell(store: MetadataStore) -> None:
        assert await store.get_many([]) == []
        await store.multi([Create("/r"), *(Create(f"/r/{n}", b"%d" % n) for n in range(0, 900, 2))])
        await store.multi([Set("/r/4", b"\xc3\xa9" * 1000, 0)])
        found = await store.get_many([f"/r/{n}" for n in range(900)] + ["/r"])
        assert [node is not None for node in found[:900]] == [n % 2 == 0 for n in range(900)]
        one_by_one = [await store.get(path) for path in ("/r/0", "/r/4", "/r/898", "/r")]
        assert [found[0], found[4], found[898], found[900]] == one_by_one

    story(ensemble, tell)


def test_multi_is_all_or_nothing_and_names_the_culprit(ensemble: Ensemble) -> None:
    async def tell(store: MetadataStore) -> None:
        await store.multi([Create("/m"), Create("/m/x"), Create("/m/y")])
        with pytest.raises(NodeExistsError):
            await store.multi([Set("/m", b"new"), Create("/m/z"), Create("/m/x")])
        with pytest.raises(BadVersionError):
            await store.multi([Check("/m", 5), Create("/m/z")])
        with pytest.raises(NotEmptyError):
            await store.multi([Delete("/m/x"), Delete("/m")])
        with pytest.raises(NoNodeError):
            await store.multi([Create("/m/z"), Create("/m/none/z")])
        assert await store.children("/m") == ["x", "y"]
        assert (await store.get("/m")).version == 0
        assert await store.multi([Check("/m", 0), Delete("/m/x"), Delete("/m/y")]) == [None] * 3

    story(ensemble, tell)


def test_sequential_and_ensure_path(ensemble: Ensemble) -> None:
    async def tell(store: MetadataStore) -> None:
        await store.ensure_path("/deep/er/path")
        await store.ensure_path("/deep/er/path")
        made = [(await store.multi([Create("/deep/er/n_", sequential=True)]))[0] for _ in range(2)]
        first, second = (str(m) for m in made)
        assert first.startswith("/deep/er/n_")
        assert first < second
        assert await store.children("/deep/er") == [
            first.rsplit("/", 1)[1],
            second.rsplit("/", 1)[1],
            "path",
        ]

    story(ensemble, tell)


def test_czxids_rise(ensemble: Ensemble) -> None:
    async def tell(store: MetadataStore) -> None:
        await store.multi([Create("/e")])
        before = (await store.get("/e")).czxid
        await store.multi([Delete("/e")])
        await store.multi([Create("/e")])
        assert (await store.get("/e")).czxid > before

    story(ensemble, tell)


def test_ephemeral_nodes_go_with_their_session(ensemble: Ensemble) -> None:
    async def tell(one: MetadataStore, two: MetadataStore) -> None:
        await one.multi([Create("/here")])
        await one.multi([Create("/here/eph", b"x", ephemeral=True)])
        owner = (await two.get("/here/eph")).ephemeral_owner
        assert owner == one.session().session_id != two.session().session_id
        heard: list[str] = []
        two.watch("/here", heard.append)
        await two.children("/here")
        await one.close()  # type: ignore[attr-defined]
        await until(lambda: heard != [])
        assert await two.children("/here") == []

    story(ensemble, tell, sessions=2)


def test_watches_are_persistent_and_see_what_others_do(ensemble: Ensemble) -> None:
    async def tell(one: MetadataStore, two: MetadataStore) -> None:
        heard: list[str] = []
        end = one.watch("/w", heard.append)
        with pytest.raises(NoNodeError):
            await one.get("/w")  # the watch is set before this reply
        await two.multi([Create("/w")])
        await until(lambda: len(heard) > 0)
        for step in (Set("/w", b"1"), Create("/w/c"), Set("/w", b"2"), Delete("/w/c")):
            await one.get("/w")
            heard.clear()
            await two.multi([step])
            await until(lambda: len(heard) > 0)
        await one.get("/w")
        heard.clear()
        await two.multi([Delete("/w")])
        await until(lambda: len(heard) > 0)
        end()
        heard.clear()
        await two.multi([Create("/w")])
        await one.get("/w")
        assert heard == []

    story(ensemble, tell, sessions=2)


def test_what_is_larger_than_a_request_may_be_is_never_written(ensemble: Ensemble) -> None:
    """ZooKeeper closes the connection each time it is sent."""

    async def tell(store: MetadataStore) -> None:
        for _ in range(2):
            with pytest.raises(ConnectionLostError):
                await store.multi([Create("/large", bytes(1024 * 1024))])
        with pytest.raises(NoNodeError):
            await store.get("/large")
        await store.multi([Create("/large", bytes(1_000_000))])

    story(ensemble, tell)


def test_a_large_multi(ensemble: Ensemble) -> None:
    async def tell(store: MetadataStore) -> None:
        await store.multi([Create("/big")])
        await store.multi([Create(f"/big/{i:04d}", b"x" * 100) for i in range(1000)])
        assert len(await store.children("/big")) == 1000

    story(ensemble, tell)


@pytest.mark.parametrize(
    ("text", "hosts", "chroot"),
    [
        ("a:1", "a:1", ""),
        ("a:1,b:2/x/y", "a:1,b:2", "/x/y"),
        ("a:1/", "a:1", ""),
        ("a:1/x/", "a:1", "/x"),
    ],
)
def test_chroot_is_taken_off_the_connect_string(text: str, hosts: str, chroot: str) -> None:
    assert split_chroot(text) == (hosts, chroot)


@pytest.mark.parametrize("text", ["", "/x", "a:1//x"])
def test_a_bad_connect_string_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        split_chroot(text)
