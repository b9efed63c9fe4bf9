"""Blocking calls survive the restart of a whole cluster; without any broker they fail at once."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.client.blocking.cluster import BlockingCluster
from headwater.client.errors import NoBrokersAvailableError
from headwater.testing.clocks import ManualClock
from headwater.wire.apis.k03_metadata import MetadataResponse, MetadataResponseBroker


class Cluster:
    """Two brokers; connections opened before `restarts` grew are closed by the peer."""

    def __init__(self) -> None:
        self.restarts = 0
        self.is_up = True
        self.asked = 0


class Connection:
    """The part of BlockingConnection that BlockingCluster uses."""

    def __init__(self, cluster: Cluster, host: str, port: int, **_more: object) -> None:
        if not cluster.is_up:
            raise ConnectionRefusedError(f"{host}:{port} refuses")
        self.host, self.port, self.is_open = host, port, True
        self._cluster, self._restarts = cluster, cluster.restarts

    def call(self, *_arguments: Any, **_more: Any) -> MetadataResponse:
        if self._restarts != self._cluster.restarts:
            raise ConnectionError(f"{self.host}:{self.port} closed the connection")
        self._cluster.asked += 1
        brokers = tuple(
            MetadataResponseBroker(node_id=n, host="broker", port=9092 + n) for n in range(2)
        )
        return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=0, topics=())

    def close(self) -> None:
        self.is_open = False


def connect(cluster: Cluster) -> BlockingCluster:
    """A client of it; when the client pauses, the cluster is up again afterwards."""
    return BlockingCluster(
        "broker:9092",
        ManualClock(),
        client_id="t",
        request_timeout_s=1,
        retry_timeout_s=1,
        connect=lambda *a, **more: Connection(cluster, *a, **more),  # type: ignore[arg-type]
        sleep=lambda _s: setattr(cluster, "is_up", True),
    )


def test_calls_go_on_after_every_broker_was_restarted() -> None:
    cluster = Cluster()
    client = connect(cluster)
    client.metadata([])
    client.connection(1)  # so that more than one pooled connection is stale
    cluster.restarts += 1
    cluster.is_up = False
    client.metadata([])
    assert cluster.asked == 2


def test_a_call_fails_at_once_where_no_broker_ever_answered() -> None:
    cluster = Cluster()
    cluster.is_up = False
    with pytest.raises(NoBrokersAvailableError, match="broker:9092 refuses"):
        connect(cluster).metadata([])
    assert not cluster.is_up, "it paused"
