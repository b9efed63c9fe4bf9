"""Brokers under a standalone Spark cluster, under load: an executor dies, brokers come and go.

An SDK producer and an SDK consumer in a group run all the time. No client sees an error, no record
is lost or twice, and no partition stops acknowledging for longer than a second.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater import Admin
from headwater.client.values import NewTopic
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.supervisor import supervised_zookeeper
from headwater.system import SystemClock
from headwater_spark.cluster.cluster import Cluster
from integration.cluster import CLUSTER_ID, LocalCluster
from integration.conftest import next_base_port
from integration.sdk_load import SdkLoad
from integration.spark_sessions import spark_session
from integration.spark_workers import standalone

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]

WORKERS = 5
CORES = 3
PARTITIONS = 6
BACK_MAX_S = 30.0
GAP_MAX_S = 1.0
ROLLING_GAP_MAX_S = 2.0
"""The brokers that start take the cores of those that serve."""
WAIT_S = 120.0
CONF = {"spark.executor.cores": str(CORES), "spark.executor.memory": "512m"}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("standalone")
    port = next_base_port(folder)
    with (
        standalone(folder, port, WORKERS, cores=CORES, memory="600m") as url,
        spark_session(url, delta=False, conf=CONF) as session,
    ):
        yield session


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An ensemble of one server, as production has of several."""
    folder = tmp_path_factory.mktemp("ensemble")
    spec = ClusterSpec(folder, CLUSTER_ID, 1, next_base_port(folder))
    server = supervised_zookeeper(spec, SystemClock(), lambda: None)
    server.start()
    server.wait_ready()
    yield spec.zookeeper
    server.ask_to_stop()
    server.finish_stop()


@pytest.fixture(scope="module")
def cluster(
    spark: SparkSession, zookeeper: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("brokers")
    started = Cluster.start(
        spark, 3, folder / "d", port=next_base_port(folder), zookeeper=f"{zookeeper}/hw"
    )
    with started:
        yield started


def create(servers: str, topic: str) -> None:
    configs = {"min.insync.replicas": "2"}
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(topic, PARTITIONS, 3, configs)])


def in_sync(servers: str, topic: str) -> bool:
    with Admin(servers) as admin:
        rows = admin.describe_topics([topic])[topic].partitions
    return all(len(row.isr) == 3 and row.leader >= 0 for row in rows)


def test_a_killed_executor_is_back_and_in_sync_within_30_s(cluster: Cluster) -> None:
    servers, topic = cluster.bootstrap_servers, "killed"
    create(servers, topic)
    with SdkLoad(servers, topic, PARTITIONS) as load:
        for broker_id in (0, 1):
            victim = cluster.brokers[broker_id]
            assert victim.executor_pid is not None
            print(f"broker {broker_id}: its executor is killed after {load.since_began_s():.2f} s")
            began = time.monotonic()
            os.kill(victim.executor_pid, signal.SIGKILL)
            LocalCluster.wait_until(
                lambda: (
                    cluster.brokers[broker_id].pid not in (None, victim.pid)  # noqa: B023
                    and cluster.wait_ready(0)
                ),
                "the broker back",
                WAIT_S,
            )
            LocalCluster.wait_until(lambda: in_sync(servers, topic), "full ISR", WAIT_S)
            took = time.monotonic() - began
            print(f"broker {broker_id}: back and in sync after {took:.1f} s")
            assert took <= BACK_MAX_S
    load.check(GAP_MAX_S)


def test_scaling_from_3_to_5_to_3_shows_no_client_an_error(
    cluster: Cluster, zookeeper: str
) -> None:
    servers, topic = cluster.bootstrap_servers, "scaled"
    create(servers, topic)
    with SdkLoad(servers, topic, PARTITIONS) as load:
        began = time.monotonic()
        cluster.scale(5)
        up = time.monotonic()
        assert [b.broker_id for b in cluster.brokers if b.ready] == [0, 1, 2, 3, 4]
        assert len({b.executor_id for b in cluster.brokers}) == 5
        assert holders(servers) == {0, 1, 2, 3, 4}
        # From a process that is not the driver, as on another host.
        attached = Cluster.attach(zookeeper=f"{zookeeper}/hw")
        attached.scale(3)
        print(f"3 to 5: {up - began:.1f} s, 5 to 3: {time.monotonic() - up:.1f} s")
        assert holders(servers) == {0, 1, 2}
        assert [b.broker_id for b in attached.brokers] == [0, 1, 2]
    load.check(GAP_MAX_S)


def test_a_rolling_restart_and_an_upgrade_of_one_broker(cluster: Cluster, tmp_path: Path) -> None:
    servers, topic = cluster.bootstrap_servers, "rolled"
    create(servers, topic)
    places = {b.broker_id: b.executor_id for b in cluster.brokers}
    pids = {b.pid for b in cluster.brokers}
    with SdkLoad(servers, topic, PARTITIONS) as load:
        assert sorted(cluster.restart(rolling=True)) == [0, 1, 2]
        assert pids.isdisjoint(b.pid for b in cluster.brokers)
        assert places == {b.broker_id: b.executor_id for b in cluster.brokers}
        cluster.restart(2, python=sys.executable)
    load.check(ROLLING_GAP_MAX_S)
    assert "ZooKeeper session: connected" in cluster.logs(2)


def holders(servers: str) -> set[int]:
    """The brokers that have a replica of any topic."""
    with Admin(servers) as admin:
        topics = admin.describe_topics()
    return {i for topic in topics.values() for row in topic.partitions for i in row.replicas}
