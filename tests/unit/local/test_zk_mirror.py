"""The copy of trees of ZooKeeper: each change is reported once, whatever happens to connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from kazoo.exceptions import ConnectionLoss, NoAuthError, NoNodeError

from headwater.local.zk_mirror import ZooKeeperMirror
from headwater.local.zk_nodes import Znode, ZooKeeperError

Watch = Callable[[Any], None]


class Event(NamedTuple):
    path: str | None
    type: str = "CHANGED"


class Stat(NamedTuple):
    version: int
    mzxid: int


class Answer:
    def __init__(self, work: Callable[[], Any]) -> None:
        self.get = work


class FakeKazoo:
    """Nodes below the chroot `/k`, with one-time watches."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {}
        self.zxid = 0
        self.zxids: dict[str, int] = {}
        self.forbidden: set[str] = set()
        self.is_down = False
        self.reads = 0
        self._watches: dict[str, set[Watch]] = {}
        self._child_watches: dict[str, set[Watch]] = {}

    def __call__(self, hosts: str, _security: object, **_options: object) -> FakeKazoo:
        assert hosts == "zk:1"
        return self

    def start(self, _timeout_s: float) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...

    def put(self, path: str, data: bytes) -> None:
        full = f"/k{path}"
        is_new = full not in self.nodes
        self.zxid += 1
        self.nodes[full], self.zxids[full] = data, self.zxid
        self._fire(self._watches, full)
        if is_new:
            self._fire(self._child_watches, full.rpartition("/")[0])

    def delete(self, path: str) -> None:
        full = f"/k{path}"
        del self.nodes[full]
        self._fire(self._watches, full)
        self._fire(self._child_watches, full.rpartition("/")[0])

    def lose_connection(self) -> None:
        every = [w for of in (self._watches, self._child_watches) for ws in of.values() for w in ws]
        self._watches, self._child_watches = {}, {}
        for watch in every:
            watch(Event(None, "NONE"))

    def get_async(self, path: str, watch: Watch) -> Answer:
        def work() -> tuple[bytes, Stat]:
            self._check(path)
            if path not in self.nodes:
                raise NoNodeError
            self._watches.setdefault(path, set()).add(watch)
            return self.nodes[path], Stat(0, self.zxids[path])

        self.reads += 1
        return Answer(work)

    def get_children_async(self, path: str, watch: Watch) -> Answer:
        def work() -> list[str]:
            self._check(path)
            if path not in self.nodes:
                raise NoNodeError
            self._child_watches.setdefault(path, set()).add(watch)
            below = [p[len(path) + 1 :] for p in self.nodes if p.startswith(f"{path}/")]
            return [name for name in below if "/" not in name]

        return Answer(work)

    def exists(self, path: str, watch: Watch) -> object:
        self._watches.setdefault(path, set()).add(watch)
        return path in self.nodes or None

    def _check(self, path: str) -> None:
        if self.is_down:
            raise ConnectionLoss
        if path in self.forbidden:
            raise NoAuthError

    def _fire(self, watches: dict[str, set[Watch]], path: str) -> None:
        for watch in watches.pop(path, set()):
            watch(Event(path))


@pytest.fixture
def kazoo() -> FakeKazoo:
    fake = FakeKazoo()
    for path in ("/topics", "/topics/a", "/topics/a/deep", "/users", "/users/u", "/users/u/c"):
        fake.put(path, path.encode())
    return fake


@pytest.fixture
def mirror(kazoo: FakeKazoo) -> ZooKeeperMirror:
    roots = {"/topics": 1, "/users": 3, "/id": 0}
    return ZooKeeperMirror("zk:1/k", roots, connect=kazoo)


def data(found: dict[str, Znode | None]) -> dict[str, bytes | None]:
    return {path: None if node is None else node.data for path, node in found.items()}


def test_at_first_every_node_is_reported_down_to_its_roots_levels(mirror: ZooKeeperMirror) -> None:
    assert data(mirror.changed()) == {
        "/topics": b"/topics",
        "/topics/a": b"/topics/a",
        "/users": b"/users",
        "/users/u": b"/users/u",
        "/users/u/c": b"/users/u/c",
        "/id": None,
    }
    assert mirror.changed() == {}


def test_a_change_costs_one_read_and_nothing_none(
    mirror: ZooKeeperMirror, kazoo: FakeKazoo
) -> None:
    mirror.changed()
    before = kazoo.reads
    mirror.changed()
    assert kazoo.reads == before
    kazoo.put("/topics/a", b"new")
    found = mirror.changed()
    assert found == {"/topics/a": Znode(b"new", 0, kazoo.zxid)}
    assert kazoo.reads == before + 1
    kazoo.put("/topics/a", b"newer")
    assert data(mirror.changed()) == {"/topics/a": b"newer"}, "the watch is set again"


def test_new_and_deleted_nodes_are_reported(mirror: ZooKeeperMirror, kazoo: FakeKazoo) -> None:
    mirror.changed()
    kazoo.put("/topics/b", b"b")
    kazoo.put("/id", b"7")
    found = data(mirror.changed())
    assert (found["/topics/b"], found["/id"]) == (b"b", b"7")
    kazoo.delete("/topics/b")
    assert data(mirror.changed())["/topics/b"] is None
    kazoo.put("/topics/b", b"again")
    assert data(mirror.changed())["/topics/b"] == b"again"


def test_after_a_lost_connection_all_is_read_and_what_went_is_named(
    mirror: ZooKeeperMirror, kazoo: FakeKazoo
) -> None:
    mirror.changed()
    kazoo.lose_connection()
    kazoo.delete("/topics/a")
    kazoo.put("/topics/c", b"c")
    found = data(mirror.changed())
    assert (found["/topics/a"], found["/topics/c"]) == (None, b"c")
    assert found["/users/u/c"] == b"/users/u/c"
    assert mirror.changed() == {}


def test_a_failed_read_is_repeated(mirror: ZooKeeperMirror, kazoo: FakeKazoo) -> None:
    kazoo.is_down = True
    with pytest.raises(ZooKeeperError, match="zk:1/k"):
        mirror.changed()
    kazoo.is_down = False
    assert len(mirror.changed()) == 6
    kazoo.put("/topics/a", b"new")
    kazoo.is_down = True
    with pytest.raises(ZooKeeperError):
        mirror.changed()
    kazoo.is_down = False
    assert data(mirror.changed()) == {"/topics/a": b"new"}


def test_nodes_of_other_credentials_are_named(mirror: ZooKeeperMirror, kazoo: FakeKazoo) -> None:
    kazoo.forbidden.add("/k/users/u")
    found = mirror.changed()
    assert mirror.unreadable == {"/users/u"}
    assert found["/users/u"] is None
