"""A replica moves between the data folders of a broker that is written to, and killed meanwhile."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from headwater.client.values import TopicPartition
from integration.cluster import LocalCluster
from integration.conftest import Start
from integration.workload import Workload

pytestmark = pytest.mark.integration

FILL_CHARS = 1000
FILLED = 60_000


def test_a_served_replica_moves_to_another_folder_and_back(
    start_cluster: Start, tmp_path_factory: pytest.TempPathFactory
) -> None:
    disks = [tmp_path_factory.mktemp("disk") for _ in range(2)]
    cluster = start_cluster(brokers=1, log_dirs=",".join(map(str, disks)))
    tp = TopicPartition(cluster.create_topic("moved", segment_bytes="8000000"), 0)
    fill(cluster, tp.topic)
    with Workload(cluster.bootstrap, tp.topic) as load:
        load.wait_acks(50)
        here = folder_of(cluster, tp)
        there = next(str(disk) for disk in disks if str(disk) != here)
        move(cluster, tp, there)
        cluster.kill_broker(0, restart=True)  # the copy is taken up again
        load.wait_acks(50)
        cluster.wait_until(lambda: folder_of(cluster, tp) == there, "moved", 60)
        load.wait_acks(50)
        move(cluster, tp, here)
        cluster.wait_until(lambda: folder_of(cluster, tp) == here, "moved back", 60)
        load.wait_acks(50)
        cluster.kill_broker(0, restart=True)
        load.wait_acks(50)
    report = load.check()
    assert report.is_clean, report
    held = [disk for disk in disks if (disk / "moved-0").exists()]
    assert [str(disk) for disk in held] == [here]


def fill(cluster: LocalCluster, topic: str) -> None:
    """Enough that a copy takes a while."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 20})
    for number in range(FILLED):
        producer.produce(topic, f"fill:0:{number}".ljust(FILL_CHARS, "."))
        if number % 5000 == 0:
            producer.flush(30)
    assert producer.flush(60) == 0


def move(cluster: LocalCluster, tp: TopicPartition, path: str) -> None:
    with cluster.admin() as admin:
        outcomes = admin.alter_replica_log_dirs(0, {tp: path})
    assert outcomes == {tp: None}


def folder_of(cluster: LocalCluster, tp: TopicPartition) -> str:
    """Where its current log is."""
    with cluster.admin() as admin:
        rows = admin.describe_log_dirs([0])[0]
    return next(r.path for r in rows if tp in r.replicas and not r.replicas[tp].is_future)
