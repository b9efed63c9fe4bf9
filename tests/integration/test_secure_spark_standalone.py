"""A secure cluster on executors with addresses of their own: standalone Spark, its own ensemble.

The brokers listen on every address and advertise their executor's; the link leaves loopback.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater import Admin, Consumer, Producer
from headwater.client.security_options import SecurityOptions, security_keywords
from headwater.client.values import NewTopic, TopicPartition
from headwater.config.java_properties import read_java_properties
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.supervisor import supervised_zookeeper
from headwater.system import SystemClock
from headwater_spark.cluster.cluster import Cluster
from integration.cluster import CLUSTER_ID, LocalCluster
from integration.conftest import next_base_port
from integration.spark_sessions import spark_session
from integration.spark_workers import standalone

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]

CORES = 3
WAIT_S = 120.0
CONF = {"spark.executor.cores": str(CORES), "spark.executor.memory": "512m"}
ROWS = 200


@pytest.fixture
def spark(tmp_path: Path) -> Iterator[SparkSession]:
    port = next_base_port(tmp_path)
    with (
        standalone(tmp_path / "standalone", port, 3, cores=CORES, memory="600m") as url,
        spark_session(url, delta=False, conf=CONF) as session,
    ):
        yield session


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[str]:
    folder = tmp_path / "ensemble"
    folder.mkdir()
    spec = ClusterSpec(folder, CLUSTER_ID, 1, next_base_port(folder))
    server = supervised_zookeeper(spec, SystemClock(), lambda: None)
    server.start()
    server.wait_ready()
    yield f"{spec.zookeeper}/hw"
    server.ask_to_stop()
    server.finish_stop()


def login_of(cluster: Cluster) -> SecurityOptions:
    rows = read_java_properties(str(cluster.client_properties), "the login")
    return security_keywords(rows)


def read_all(cluster: Cluster, topic: str) -> list[bytes]:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, **login_of(cluster)) as consumer:
        part = TopicPartition(topic, 0)
        consumer.assign([part])
        consumer.seek_to_beginning(part)
        found: list[bytes] = []
        while consumer.position(part) < consumer.end_offsets([part])[part]:
            for records in consumer.poll(timeout_ms=500).values():
                found += [bytes(record.value) for record in records]
        return found


def test_an_executor_dies_and_its_broker_is_back_with_a_certificate_of_its_new_key(
    spark: SparkSession, zookeeper: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = next_base_port(tmp_path)
    with Cluster.start(spark, 2, tmp_path / "d", port, zookeeper=zookeeper, secure=True) as cluster:
        assert "Spark ships the brokers' entry tokens in the clear" in caplog.text
        assert "127.0.0.1" not in cluster.bootstrap_servers
        login = login_of(cluster)
        with Admin(cluster.bootstrap_servers, **login) as admin:
            admin.create_topics([NewTopic("t", 1, 2)])
        with Producer(cluster.bootstrap_servers, acks="all", **login) as producer:
            for i in range(ROWS):
                producer.send("t", str(i).encode(), partition=0)
        store = tmp_path / "d" / "security" / "broker-0" / "keystore.pem"
        former, victim = store.read_bytes(), cluster.brokers[0]
        assert victim.executor_pid is not None
        os.kill(victim.executor_pid, signal.SIGKILL)
        LocalCluster.wait_until(
            lambda: cluster.brokers[0].pid not in (None, victim.pid) and cluster.wait_ready(0),
            "the broker back",
            WAIT_S,
        )
        assert store.read_bytes() != former, "each task makes a key of its own"
        assert read_all(cluster, "t") == [str(i).encode() for i in range(ROWS)]
        cluster.restart(1)
        rows = spark.read.format("headwater").options(**cluster.spark_options())
        assert rows.option("subscribe", "t").load().count() == ROWS
        # Tiering's vehicle and the sink ship tokens, which need no file of the driver's.
        values = spark.range(5).selectExpr("CAST(id AS STRING) AS value").write
        values = values.format("headwater").options(**cluster.spark_options())
        values.option("topic", "t").mode("append").save()
        assert len(read_all(cluster, "t")) == ROWS + 5
