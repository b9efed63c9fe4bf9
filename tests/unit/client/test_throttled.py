"""Clients over a quota send nothing during the throttle time (KIP-219), over sockets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater import Admin, Consumer, Producer
from headwater.client.blocking.record_client import RecordClient
from headwater.client.connection import Connection
from headwater.client.values import NewTopic
from headwater.wire.apis.k11_join_group import JoinGroupResponse
from headwater.wire.apis.k22_init_producer_id import InitProducerIdResponse
from whole_cluster import ServedCluster

PATIENCE_MS = 1_000
"""The timeout of a request. One that is sent while the broker does not read exceeds it."""
BYTES_PER_S = 10_000
RECORD = bytes(28_000)
"""More than two windows of a second allow: the next one waits."""


@pytest.fixture
def c(tmp_path: Path) -> Iterator[ServedCluster]:
    with ServedCluster(tmp_path / "cluster", 1, quota_window_num="2") as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("t", 1, 1)])
        yield cluster


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why connections failed, other than by `close`."""
    reasons: list[str] = []
    real = Connection.fail

    def fail(self: Connection, reason: str) -> None:
        if reason != "connection closed":
            reasons.append(reason)
        real(self, reason)

    monkeypatch.setattr(Connection, "fail", fail)
    return reasons


def limit(c: ServedCluster, key: str) -> None:
    with Admin(c.bootstrap) as admin:
        admin.alter_client_quotas({"client-id": "slow"}, {key: BYTES_PER_S})
    [broker] = c.cluster.brokers.values()
    c.until(lambda: broker.services.quotas.is_active, "the quota counts")


def throttled(c: ServedCluster) -> int:
    [broker] = c.cluster.brokers.values()
    return sum(broker.services.quotas.throttled.values())


def test_a_producer_sends_nothing_while_it_is_throttled(c: ServedCluster, lost: list[str]) -> None:
    limit(c, "producer_byte_rate")
    with Producer(c.bootstrap, client_id="slow", request_timeout_ms=PATIENCE_MS) as producer:
        sent = [producer.send("t", RECORD).result(30).offset for _ in range(2)]
    assert sent == [0, 1]
    assert throttled(c) >= 1
    assert not lost


def test_a_producer_continues_after_the_throttle_of_any_request(
    c: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of another request than Produce, when nothing else wakes the sender."""
    throttled_on: list[Connection] = []
    real = Connection.call

    async def call(self: Connection, request: Any, reply_type: Any, **more: Any) -> Any:
        reply = await real(self, request, reply_type, **more)
        if isinstance(reply, InitProducerIdResponse):
            throttled_on.append(self)
            return replace(reply, throttle_time_ms=300)
        return reply

    monkeypatch.setattr(Connection, "call", call)
    with Producer(c.bootstrap) as producer:
        assert producer.send("t", b"x").result(5).offset == 0
    assert len(throttled_on) == 1


def test_a_consumer_fetches_nothing_while_it_is_throttled(
    c: ServedCluster, lost: list[str]
) -> None:
    with Producer(c.bootstrap) as producer:
        for _ in range(2):
            producer.send("t", RECORD).result(30)
    limit(c, "consumer_byte_rate")
    found = 0
    with Consumer(
        bootstrap_servers=c.bootstrap,
        client_id="slow",
        request_timeout_ms=PATIENCE_MS,
        max_partition_fetch_bytes=len(RECORD),
    ) as consumer:
        consumer.assign([("t", 0)])
        consumer.seek_to_beginning(("t", 0))
        while found < 2:
            rows = consumer.poll(20_000)
            assert rows
            found += sum(map(len, rows.values()))
    assert throttled(c) >= 1
    assert not lost


def test_a_member_of_a_group_sends_nothing_while_it_is_throttled(
    c: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    times: list[tuple[str, float]] = []
    real = Connection.call

    async def call(self: Connection, request: Any, reply_type: Any, **more: Any) -> Any:
        times.append((type(request).__name__, time.monotonic()))
        reply = await real(self, request, reply_type, **more)
        return replace(reply, throttle_time_ms=300) if reply_type is JoinGroupResponse else reply

    monkeypatch.setattr(Connection, "call", call)
    with Consumer("t", bootstrap_servers=c.bootstrap, group_id="g") as consumer:
        while not consumer.assignment():
            consumer.poll(50)
    joined = max(at for name, at in times if name == "JoinGroupRequest")
    synced = next(at for name, at in times if name == "SyncGroupRequest")
    assert synced - joined >= 0.3


def test_a_record_client_continues_after_a_throttle(c: ServedCluster) -> None:
    """A throttled fetch is answered without topics: that must not end a Spark task."""
    with RecordClient(
        c.bootstrap, client_id="slow", request_timeout_s=PATIENCE_MS / 1000
    ) as client:
        with Producer(c.bootstrap) as producer:
            for _ in range(2):
                producer.send("t", RECORD).result(30)
        limit(c, "consumer_byte_rate")
        rows = client.stream_batches("t", 0, 0, 2, max_bytes=len(RECORD))
        assert [row.next_offset for row in rows] == [1, 2]
        assert client.fetch_batches("t", 0, 1, max_bytes=len(RECORD)).next_offset == 2
        assert throttled(c) >= 2
