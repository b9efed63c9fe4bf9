"""The hosts of brokers' data in ZooKeeper."""

from __future__ import annotations

import json
from typing import Any

from kazoo.exceptions import ConnectionLoss, NodeExistsError, NoNodeError

from headwater.local.broker_homes import BrokerHomes


class Store:
    """The calls of a kazoo client that are needed here."""

    def __init__(self) -> None:
        self.nodes: dict[str, bytes] = {}
        self.is_lost = False

    def get(self, path: str) -> tuple[bytes, None]:
        self._reach(path)
        return self.nodes[path], None

    def set(self, path: str, value: bytes) -> None:
        self._reach(path)
        self.nodes[path] = value

    def create(self, path: str, value: bytes, makepath: bool) -> None:
        assert makepath
        if path in self.nodes:
            raise NodeExistsError
        self.nodes[path] = value

    def delete(self, path: str) -> None:
        self._reach(path)
        del self.nodes[path]

    def _reach(self, path: str) -> None:
        if self.is_lost:
            raise ConnectionLoss
        if path not in self.nodes:
            raise NoNodeError


def homes() -> tuple[BrokerHomes, Store]:
    store: Any = Store()
    return BrokerHomes(store), store


def test_the_latest_host_is_kept_until_the_broker_is_removed() -> None:
    brokers, store = homes()
    assert brokers.of(3) == ""
    brokers.put(3, "10.0.0.7")
    brokers.put(3, "10.0.0.8")
    assert (brokers.of(3), brokers.of(4)) == ("10.0.0.8", "")
    assert json.loads(store.nodes["/headwater/homes/3"]) == {"format": 1, "host": "10.0.0.8"}
    brokers.remove(3)
    brokers.remove(3)
    assert brokers.of(3) == ""


def test_a_host_that_cannot_be_read_is_not_known() -> None:
    brokers, store = homes()
    for value in (b"", b"[]", b'{"format": 2, "host": "h"}', b'{"format": 1}'):
        store.nodes["/headwater/homes/1"] = value
        assert brokers.of(1) == ""


def test_brokers_go_on_without_zookeeper() -> None:
    brokers, store = homes()
    store.is_lost = True
    brokers.put(1, "10.0.0.7")
    brokers.remove(1)
    assert brokers.of(1) == "" and store.nodes == {}
