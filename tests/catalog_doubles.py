"""Doubles for the catalog and for restore: nodes of ZooKeeper in memory, and what brokers say."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from headwater.ids import id_text
from headwater.local.zk_nodes import Znode
from headwater_tier.catalog.rows import Key, Kind, dump

CLUSTER = "hwTestClusterAAAAAAAAAA"
A, B = UUID(int=0xA), UUID(int=0xB)


class MemoryNodes:
    """`ZooKeeperNodes`, and with `changed` also `ZooKeeperMirror`."""

    servers = "zk:2181"

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {}
        self.unreadable: set[str] = set()
        self.writes = 0
        self.dies_at: int | None = None
        """The write that ends the process, before it is done."""
        self._changes: dict[str, Znode | None] = {}
        self._zxid = 0

    def get(self, path: str) -> Znode | None:
        return self.nodes.get(path)

    def children(self, path: str) -> list[str]:
        below = {
            p[len(path) + 1 :].partition("/")[0] for p in self.nodes if p.startswith(path + "/")
        }
        return sorted(below)

    def put(self, path: str, data: bytes, *, secret: bool = False) -> None:
        self.writes += 1
        if self.writes == self.dies_at:
            raise KilledError(path)
        self._zxid += 1
        self.nodes[path] = self._changes[path] = Znode(data, 0, self._zxid)

    def create(self, path: str, data: bytes) -> bool:
        if path in self.nodes:
            return False
        self.put(path, data)
        return True

    def delete(self, path: str) -> None:
        del self.nodes[path]
        self._changes[path] = None

    def changed(self) -> dict[str, Znode | None]:
        found, self._changes = self._changes, {}
        return found


class KilledError(Exception):
    """The process ended here."""


class SaidByBrokers:
    """`BrokerObserver`."""

    def __init__(self) -> None:
        self.logs: dict[str, tuple[UUID, dict[int, tuple[int, int]]]] = {}
        """Topic -> its id, partition -> (log end, leader epoch)."""
        self.committed: dict[str, dict[str, dict[int, int]]] = {}
        self.shared: dict[str, dict[tuple[str, UUID], dict[int, int]]] = {}
        """Share group -> (topic, its id) -> partition -> start offset."""
        self.error: Exception | None = None
        self.while_reading: Callable[[], None] = lambda: None

    def ends(self) -> dict[Key, str]:
        self.while_reading()
        if self.error is not None:
            raise self.error
        return {
            (Kind.ENDS, name): dump(
                {"id": id_text(topic_id), "ends": {str(p): list(e) for p, e in ends.items()}}
            )
            for name, (topic_id, ends) in self.logs.items()
        }

    def groups(self) -> dict[Key, str]:
        return {
            (Kind.GROUP, group): dump(
                {
                    "offsets": {
                        topic: {str(p): [at, "m"] for p, at in rows.items()}
                        for topic, rows in offsets.items()
                    }
                }
            )
            for group, offsets in self.committed.items()
        } | {
            (Kind.SHARE_GROUP, group): dump({"starts": _with_ids(starts)})
            for group, starts in self.shared.items()
        }


def _with_ids(starts: dict[tuple[str, UUID], dict[int, int]]) -> dict[str, Any]:
    return {
        topic: {"id": id_text(topic_id), "starts": {str(p): at for p, at in rows.items()}}
        for (topic, topic_id), rows in starts.items()
    }


def config(**rows: str) -> bytes:
    return json.dumps(
        {"version": 1, "config": {k.replace("_", "."): v for k, v in rows.items()}}
    ).encode()


def assignment(topic_id: UUID, partitions: dict[int, list[int]], **more: Any) -> bytes:
    row = {
        "version": 3,
        "topic_id": id_text(topic_id),
        "partitions": {str(p): brokers for p, brokers in partitions.items()},
        "adding_replicas": {},
        "removing_replicas": {},
        **more,
    }
    return json.dumps(row).encode()


def a_cluster() -> tuple[MemoryNodes, SaidByBrokers]:
    """Two topics: `tiered` of two partitions, and `plain`; a group, a user, ACLs, quotas."""
    nodes, said = MemoryNodes(), SaidByBrokers()
    nodes.put("/cluster/id", json.dumps({"version": "1", "id": CLUSTER}).encode())
    nodes.put("/controller_epoch", b"7")
    nodes.put(
        "/latest_producer_id_block",
        dump({"version": 1, "broker": 0, "block_start": "1000", "block_end": "1999"}).encode(),
    )
    nodes.put("/brokers/topics/tiered", assignment(A, {0: [0, 1], 1: [1, 0]}, is_tiered=True))
    nodes.put("/brokers/topics/plain", assignment(B, {0: [2, 0]}))
    nodes.put("/brokers/topics/__consumer_offsets", assignment(UUID(int=1), {0: [0]}))
    nodes.put("/config/topics/tiered", config(remote_storage_enable="true", retention_ms="-1"))
    nodes.put("/config/topics/plain", config())
    nodes.put(
        "/config/brokers/<default>", config(num_partitions="3", ssl_keystore_password="s3cret")
    )
    nodes.put(
        "/config/users/alice",
        json.dumps(
            {
                "version": 1,
                "config": {"SCRAM-SHA-512": "salt=x,stored_key=y", "producer_byte_rate": "1000"},
            }
        ).encode(),
    )
    nodes.put("/config/groups/app", config(share_auto_offset_reset="earliest"))
    nodes.put("/kafka-acl/Topic", b"")
    nodes.put("/kafka-acl/Topic/tiered", b'{"version":1,"acls":[]}')
    said.logs = {"tiered": (A, {0: (600, 3), 1: (5, 4)}), "plain": (B, {0: (40, 0)})}
    said.committed = {"app": {"tiered": {0: 300}, "plain": {0: 45}}}
    said.shared = {"queue": {("tiered", A): {0: 120, 1: 4}, ("plain", B): {0: 30}}}
    return nodes, said
