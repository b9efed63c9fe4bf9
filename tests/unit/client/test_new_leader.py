"""A producer whose partition gets another leader: batches wait for no back-off then (KIP-951)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, cast

import pytest

from headwater.client.admin.client import Admin
from headwater.client.cluster import Cluster, ClusterOptions
from headwater.client.core.partition_queue import PartitionQueue, ProducerBatch
from headwater.client.errors import kafka_error
from headwater.client.futures import BatchCompletion
from headwater.client.metadata_refresh import MetadataRefresh
from headwater.client.producer import Producer
from headwater.client.record_accumulator import RecordAccumulator
from headwater.client.values import NewTopic, TopicPartition
from headwater.errors import ErrorCode
from headwater.wire.apis.k03_metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from whole_cluster import ServedCluster

TP = TopicPartition("t", 0)
LIMIT_S = 20.0
LONG_MS = 60_000.0
"""A back-off that no test waits for."""


def test_a_refused_batch_goes_to_the_new_leader_at_once(tmp_path: Path) -> None:
    with ServedCluster(tmp_path) as served, Admin(served.bootstrap) as admin:
        admin.create_topics([NewTopic("t", assignments={0: [0, 1, 2]})])
        options = {"retry_backoff_ms": LONG_MS, "retry_backoff_max_ms": LONG_MS}
        with Producer(served.bootstrap, **options) as producer:
            assert producer.send("t", b"1").result(LIMIT_S).offset == 0
            assert admin.alter_partition_reassignments({TP: [1, 2, 0]})[TP] is None
            admin.elect_leaders("preferred", [TP])
            served.until(lambda: served.state("t").leader_id == 1, "another leader")
            assert producer.send("t", b"2").result(LIMIT_S).offset == 1


class LateMetadata(Cluster):
    """Its brokers name leader 0 until they have been asked `late` times, then leader 1."""

    def __init__(self, late: int) -> None:
        super().__init__([], ClusterOptions(retry_backoff_ms=1))
        self.asked = 0
        self._late = late
        self.learn(0)

    def learn(self, leader: int) -> None:
        row = MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=leader)
        brokers = tuple(
            MetadataResponseBroker(node_id=node, host="h", port=9092) for node in (0, 1)
        )
        topic = MetadataResponseTopic(name="t", partitions=(row,))
        self.cache.update(MetadataResponse(brokers=brokers, topics=(topic,)))

    async def refresh(self, topics: Iterable[str] | None = None, **_: Any) -> None:
        self.asked += 1
        self.learn(1 if self.asked > self._late else 0)


class Queues:
    """An accumulator with one queue, whose batch has failed at leader 0."""

    def __init__(self, error: Exception) -> None:
        self.lock = threading.Lock()
        queue = PartitionQueue("t", 0, is_idempotent=True)
        queue.open = ProducerBatch(queue, BatchCompletion(lambda: 0.0), 0.0)
        queue.leader_id = 0
        batch = queue.next_batch(1, 0)
        queue.failed(batch, error, 0.0, retry_until=2 * LONG_MS, backoff_s=LONG_MS)
        self.queues = {("t", 0): queue}


@pytest.mark.parametrize(
    "error",
    [ConnectionError("lost"), kafka_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, "produce to t-0")],
)
def test_metadata_is_fetched_until_a_failed_leader_has_a_successor(error: Exception) -> None:
    assert times_asked(error, late=3) == 4
    assert times_asked(error, late=0) == 1


def test_other_errors_make_nobody_wait_for_a_leader() -> None:
    full = kafka_error(ErrorCode.NOT_ENOUGH_REPLICAS, "produce to t-0")
    assert times_asked(full, late=3) == 1


def times_asked(error: Exception, late: int) -> int:
    """How often brokers are asked once a batch has failed with `error`."""
    cluster, queues = LateMetadata(late), Queues(error)
    work: list[Coroutine[Any, Any, None]] = []
    drained: list[bool] = []
    refresh = MetadataRefresh(
        cluster,
        cast(RecordAccumulator, queues),
        auto_create=False,
        spawn=work.append,
        drain=lambda: drained.append(refresh.has_new_leader(queues.queues["t", 0])),
    )
    refresh.request()
    refresh.request()
    assert len(work) == 1, "one refresh at a time"
    asyncio.run(work[0])
    assert drained[-1] == (cluster.asked > late)
    return cluster.asked
