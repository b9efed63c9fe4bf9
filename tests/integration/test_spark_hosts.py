"""Brokers on three hosts under a standalone Spark cluster, while hosts are cut off the network.

Every host has its own network namespace, address and disks (`network_hosts`). The driver, the
master, ZooKeeper and the clients are on the machine itself. A host dies by pulling its cable: no
connection is closed or refused, every packet just vanishes, and its processes run on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headwater import Admin
from headwater.client.values import NewTopic, PartitionDescription
from headwater.local.child_restarts import SupervisedChild
from headwater.local.manager import BrokerState
from headwater.local.zookeeper import zookeeper_spec
from headwater.system import SystemClock
from headwater_spark.cluster.cluster import Cluster
from headwater_spark.cluster.spark_jobs import SparkJobs
from integration.cluster import LocalCluster
from integration.network_hosts import HostNetwork, NetworkHost, network_hosts, refusal
from integration.standalone_spark import StandaloneSpark
from integration.workload import Workload

pytestmark = [pytest.mark.integration, pytest.mark.long]

BROKERS = 3
PARTITIONS = 6
ZOOKEEPER_PORT = 2181
SESSION_TIMEOUT_S = 6
REQUEST_TIMEOUT_S = 5
PAUSE_S = 15.0
"""From the end of a session: the controller elects, the producer's request times out, it finds the
new leader. Generous, for a busy machine."""
MOVED_S = 90.0
"""Spark gives the executor up, starts another one, and the broker's replicas are full again."""
ZOMBIE_S = 60.0


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostNetwork]:
    """Three hosts, each with its own `data` folder."""
    if refusal():
        pytest.skip(f"no network namespaces here: {refusal()}")
    folder = tmp_path_factory.mktemp("hosts")
    with network_hosts(folder, 3, private=[folder / "data"]) as hosts:
        yield hosts


@pytest.fixture(scope="module")
def zookeeper(network: HostNetwork, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An ensemble of one, outside the hosts."""
    folder = tmp_path_factory.mktemp("zookeeper")
    address = network.central_address
    spec = zookeeper_spec(folder, ZOOKEEPER_PORT, folder / "zookeeper.log", address)
    server = SupervisedChild(spec, SystemClock())
    server.start()
    server.wait_ready()
    yield f"{address}:{ZOOKEEPER_PORT}"
    server.ask_to_stop()
    server.finish_stop()


@pytest.fixture(scope="module")
def standalone(
    network: HostNetwork, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StandaloneSpark]:
    """A standalone cluster, with a worker per host."""
    with StandaloneSpark(network, tmp_path_factory.mktemp("spark")) as made:
        yield made


@pytest.fixture
def spark(standalone: StandaloneSpark) -> Iterator[SparkSession]:
    """An application. Each test has its own: when a host was cut off and is back, Spark keeps the
    executor that it has started elsewhere meanwhile."""
    with standalone.session(BROKERS) as session:
        yield session


Start = Callable[[str], Cluster]


@pytest.fixture
def start(spark: SparkSession, network: HostNetwork, zookeeper: str) -> Iterator[Start]:
    """`start(name)`: three brokers, with data and metadata of an earlier start of that name."""
    properties = {
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_S * 1_000),
        "min.insync.replicas": "2",
    }
    (folder,) = network[0].private
    jobs = SparkJobs(spark, task_cpus=None)
    with ExitStack() as stack:

        def start_one(name: str) -> Cluster:
            # A host that another test has cut off may not have its executor back yet.
            LocalCluster.wait_until(
                lambda: {host.address for host in network.hosts} <= jobs.executor_hosts(),
                "an executor on every host",
                MOVED_S,
            )
            chroot = f"{zookeeper}/{name}"
            cluster = Cluster.start(
                spark, BROKERS, folder / name, zookeeper=chroot, properties=properties
            )
            return stack.enter_context(cluster)

        yield start_one


def test_each_broker_has_a_host_of_its_own_and_comes_back_to_it(
    start: Start, network: HostNetwork
) -> None:
    cluster = start("spread")
    hosts = hosts_of(cluster)
    assert set(hosts.values()) == {host.address for host in network.hosts}
    with Admin(cluster.bootstrap_servers) as admin:
        assert {b.node_id: (b.host, b.rack) for b in admin.describe_cluster().brokers} == {
            broker_id: (host, host) for broker_id, host in hosts.items()
        }
        admin.create_topics([NewTopic("spread", PARTITIONS, 2)])
        rows = admin.describe_topics(["spread"])["spread"].partitions
    assert all(len({hosts[replica] for replica in row.replicas}) == 2 for row in rows)
    for broker_id, address in hosts.items():
        found = [host.address for host in network.hosts if data_of(host, "spread", broker_id)]
        assert found == [address]
    with Workload(cluster.bootstrap_servers, "spread", partitions=PARTITIONS) as load:
        load.wait_acks(20)
    cluster.stop()

    again = start("spread")
    assert hosts_of(again) == hosts, "a broker elsewhere would have none of its data"
    load.bootstrap = again.bootstrap_servers
    report = load.check()
    assert report.is_clean and not report.failed and report.acked, report


@pytest.mark.timeout(600)
def test_hosts_are_cut_off_and_come_back(start: Start, network: HostNetwork) -> None:
    """First a host whose processes run on, then one whose processes freeze until it is back."""
    cluster = start("kept")
    servers = cluster.bootstrap_servers
    with Admin(servers) as admin:
        admin.create_topics([NewTopic("kept", PARTITIONS, 3)])
    with Workload(servers, "kept", partitions=PARTITIONS) as load:
        load.wait_acks(100)
        for is_frozen in (False, True):
            cut_and_heal(cluster, network, load, is_frozen=is_frozen)
    report = load.check()
    print(report)
    assert report.is_clean and not report.failed, report
    assert report.acked > 0


@dataclass(frozen=True, slots=True)
class Story:
    """How long each part of a host's death took."""

    pause_s: float
    moved_s: float
    full_s: float
    zombie_s: float


def cut_and_heal(
    cluster: Cluster, network: HostNetwork, load: Workload, *, is_frozen: bool
) -> Story:
    """A host dies: writes go on, its broker moves. It comes back: its old broker does no harm."""
    broker = alone_on_its_host(cluster)
    host = network.by_address(str(broker.host))
    zombies = host.processes("headwater_broker")
    assert zombies
    if is_frozen:
        host.freeze()
    host.cut()
    started = time.monotonic()
    load.wait_acks(50, SESSION_TIMEOUT_S + REQUEST_TIMEOUT_S + PAUSE_S)
    moved_s = LocalCluster.wait_until(
        lambda: is_ready_elsewhere(cluster, broker), "its broker elsewhere", MOVED_S
    )
    full_s = LocalCluster.wait_until(lambda: is_full(cluster), "full replicas", MOVED_S)
    pause_s = max(load.longest_gap_s(p, started, time.monotonic()) for p in range(PARTITIONS))
    now = cluster.brokers[broker.broker_id]
    assert data_of(network.by_address(str(now.host)), "kept", broker.broker_id)

    host.heal()
    healed = time.monotonic()
    if is_frozen:
        host.thaw()
    load.wait_acks(50)
    LocalCluster.wait_until(
        lambda: all(map(host.has_ended, zombies)), "the old broker's end", ZOMBIE_S
    )
    zombie_s = time.monotonic() - healed
    load.wait_acks(50)
    assert is_full(cluster)
    assert cluster.brokers[broker.broker_id] == now
    story = Story(pause_s, moved_s, full_s, zombie_s)
    print(f"{'frozen and ' if is_frozen else ''}cut {host.address}: {story}")
    assert pause_s <= SESSION_TIMEOUT_S + REQUEST_TIMEOUT_S + PAUSE_S
    return story


def alone_on_its_host(cluster: Cluster) -> BrokerState:
    """A broker that shares its host with no other."""
    hosts = [broker.host for broker in cluster.brokers]
    return next(broker for broker in cluster.brokers if hosts.count(broker.host) == 1)


def is_ready_elsewhere(cluster: Cluster, was: BrokerState) -> bool:
    """The broker serves on another host than before."""
    now = cluster.brokers[was.broker_id]
    return now.ready and now.host != was.host


def is_full(cluster: Cluster) -> bool:
    """Every partition has all of its replicas in sync."""
    with Admin(cluster.bootstrap_servers) as admin:
        topics = admin.describe_topics().values()
    return all(_is_in_sync(row) for topic in topics for row in topic.partitions)


def _is_in_sync(row: PartitionDescription) -> bool:
    return row.leader >= 0 and set(row.isr) == set(row.replicas)


def data_of(host: NetworkHost, cluster: str, broker_id: int) -> Path | None:
    """The broker's data folder on the host's disk; None without one."""
    (folder,) = host.private
    path = host.disk(folder) / cluster / f"broker-{broker_id}"
    return path if path.exists() else None


def hosts_of(cluster: Cluster) -> dict[int, str | None]:
    """The host of each broker."""
    return {broker.broker_id: broker.host for broker in cluster.brokers}
