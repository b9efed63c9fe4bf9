"""Real brokers inside Spark: a broker's process is killed, then the executor of another, while an
SDK producer writes. Both come back, the ISR is full again, and no acknowledged record is lost.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import Admin, Producer
from headwater.client.values import NewTopic
from headwater.errors import HeadwaterError
from headwater.local import cluster_file
from headwater_spark.cluster.cluster import Cluster
from integration.cluster import LocalCluster
from integration.conftest import next_base_port
from integration.spark_sessions import spark_session
from integration.workload import read_partition

pytestmark = [pytest.mark.integration, pytest.mark.long]

TOPIC = "kept"
PARTITIONS = 3
ROUNDS = int(os.environ.get("HEADWATER_TEST_KILL_ROUNDS", "1"))
BETWEEN_S = 4.0
WAIT_S = 90.0


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    with spark_session("local-cluster[3,3,1500]", delta=False) as session:
        yield session


class Ledger:
    """An SDK producer in a thread; keeps the outcome of every record."""

    def __init__(self, servers: str) -> None:
        self._servers = servers
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acked: dict[str, tuple[int, int]] = {}
        self.failures: list[str] = []

    def _run(self) -> None:
        pending = []
        with Producer(self._servers) as producer:
            number = 0
            while not self._done.wait(0.01):
                for _ in range(5):
                    value = f"r{number}"
                    sent = producer.send(TOPIC, value.encode(), partition=number % PARTITIONS)
                    pending.append((value, sent))
                    number += 1
            producer.flush(WAIT_S)
            for value, future in pending:
                try:
                    found = future.result(WAIT_S)
                    self.acked[value] = (found.partition, found.offset)
                except HeadwaterError as e:
                    self.failures.append(f"{value}: {e}")

    def __enter__(self) -> Ledger:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join(2 * WAIT_S)


def full_isr(servers: str) -> bool:
    with Admin(servers) as admin:
        rows = admin.describe_topics([TOPIC])[TOPIC].partitions
    return all(len(row.isr) == 3 and row.leader >= 0 for row in rows)


def alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def test_a_broker_and_another_brokers_executor_die(spark: Any, tmp_path: Path) -> None:
    cluster = Cluster.start(spark, 3, tmp_path / "data", port=next_base_port(tmp_path))
    try:
        strike(cluster)
        pids = [b.pid for b in cluster.brokers]
        pids += [p.pid for p in cluster_file.load(tmp_path / "data").processes]
    finally:
        cluster.stop()
    assert not [pid for pid in pids if pid is not None and alive(pid)]


def strike(cluster: Cluster) -> None:
    servers = cluster.bootstrap_servers
    configs = {"min.insync.replicas": "2"}
    with Admin(servers) as admin:
        admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3, configs)])
    with Ledger(servers) as ledger:
        for number in range(ROUNDS):
            first, second = number % 3, (number + 1) % 3
            before = cluster.restarts
            os.kill(cluster.brokers[first].pid, signal.SIGKILL)
            time.sleep(BETWEEN_S)
            os.kill(cluster.brokers[second].executor_pid, signal.SIGKILL)
            took = LocalCluster.wait_until(
                lambda: cluster.restarts >= before + 2 and cluster.wait_ready(0),  # noqa: B023
                "both brokers back",
                WAIT_S,
            )
            isr = LocalCluster.wait_until(lambda: full_isr(servers), "full ISR", WAIT_S)
            print(f"round {number}: back after {took:.1f} s, ISR full {isr:.1f} s later")
    assert not ledger.failures and ledger.acked
    found = {(p, o): v for p in range(PARTITIONS) for o, v in read_partition(servers, TOPIC, p)}
    lost = [v for v, at in ledger.acked.items() if found.get(at) != v]
    assert not lost, lost[:5]
    assert max(Counter(found.values()).values()) == 1
