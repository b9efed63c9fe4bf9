"""`LocalCluster`: a real cluster on this machine for tests, and the failures that it may have.

    cluster = LocalCluster(tmp_path, base_port, brokers=3)
    cluster.start()
    cluster.kill_broker(0)          # SIGKILL; stays down until restart(0)
    cluster.wipe_disk(0)            # set aside; restore_disk(0) brings it back
    cluster.restart(0)
    cluster.make_whole()            # after a test, where the next one gets the same cluster

It uses the supervisor of `headwater up`, inside the test's process.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headwater.client.admin.client import Admin
from headwater.client.blocking.broker_status import BrokerStatusClient
from headwater.client.values import NewTopic, PartitionDescription
from headwater.local import processes
from headwater.local.broker_sessions import CloseSession
from headwater.local.child_restarts import SupervisedChild
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.manager import silent
from headwater.local.service_spec import ServiceSpec
from headwater.local.supervisor import Supervisor, kill_and_wait
from headwater.local.zk_session import close_session
from headwater.system import SystemClock

CLUSTER_ID = "hwTestClusterAAAAAAAAAA"
WAIT_S = 30.0
POLL_S = 0.02
DRAIN_GRACE_S = 8.0
KEEPS = {"log.retention.ms": "-1"}
"""Tests write old timestamps: with Kafka's default, retention would delete their records."""


class LocalCluster:
    """Brokers 0..n-1 and ZooKeeper. `properties` go to every broker."""

    def __init__(
        self,
        directory: Path,
        base_port: int,
        brokers: int = 3,
        properties: Mapping[str, str] | None = None,
        kind: type[ClusterSpec] = ClusterSpec,
        close_session: CloseSession = close_session,
        services: tuple[ServiceSpec, ...] = (),
    ) -> None:
        """`kind` has the hosts, ports and folders; `close_session` ends dead ones' sessions;
        `services` run beside the brokers."""
        self._close_session = close_session
        self.directory = directory
        self.spec = kind(directory, CLUSTER_ID, brokers, base_port, services=services)
        self.properties = {**KEEPS, **(properties or {})}
        self.supervisor: Supervisor | None = None

    @property
    def bootstrap(self) -> str:
        """`bootstrap.servers` of any client."""
        return self.spec.bootstrap_servers

    bootstrap_servers = bootstrap

    @property
    def zookeeper(self) -> str:
        """`host:port` of its ZooKeeper."""
        return self.spec.zookeeper

    def start(self) -> LocalCluster:
        """Start all processes, with the data of an earlier start."""
        supervisor = Supervisor(
            self.spec,
            SystemClock(),
            properties=self.properties,
            drain_grace_s=DRAIN_GRACE_S,
            close=self._close_session,
        )
        supervisor.start(silent)
        self.supervisor = supervisor
        return self

    def stop(self) -> None:
        """Drain and end all processes, also paused and held ones; check that none is left."""
        if self.supervisor is None:
            return
        for broker in self.supervisor.brokers.values():
            broker.send(signal.SIGCONT)
        self.supervisor.stop(silent)
        self.supervisor = None
        # A broker that was killed is there until the kernel has freed its memory.
        left = processes.wait_gone(processes.of_cluster(self.directory), WAIT_S)
        assert left == [], f"left running: {left}"

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    # Failures.

    def supervised(self, broker_id: int) -> SupervisedChild:
        """The supervised child process of a broker."""
        assert self.supervisor is not None, "not started"
        return self.supervisor.brokers[broker_id]

    def pid(self, broker_id: int) -> int:
        """The process id of a broker."""
        pid = self.supervised(broker_id).pid
        assert pid is not None, f"broker {broker_id} is down"
        return pid

    def kill_broker(
        self, broker_id: int, signum: signal.Signals = signal.SIGKILL, *, restart: bool = False
    ) -> None:
        """Kill a broker; return when its registration is closed. By default it stays down."""
        broker = self.supervised(broker_id)
        if not restart:
            broker.hold()
        kill_and_wait(broker, signum)

    def stop_broker(self, broker_id: int) -> None:
        """Controlled shutdown of a broker; it stays down until `restart`."""
        broker, pid = self.supervised(broker_id), self.pid(broker_id)
        broker.drain()
        assert broker.wait_down(pid, WAIT_S), f"broker {broker_id} does not drain"

    def restart(self, broker_id: int) -> None:
        """Start a broker that was stopped; return when it is ready."""
        broker = self.supervised(broker_id)
        broker.release()
        broker.wait_ready()

    def pause(self, broker_id: int) -> None:
        """Send SIGSTOP: the broker hangs, its connections and its session stay."""
        self.supervised(broker_id).send(signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        """Send SIGCONT to a broker."""
        self.supervised(broker_id).send(signal.SIGCONT)

    def wipe_disk(self, broker_id: int) -> None:
        """Give a broker that is down an empty disk; keep the old one for `restore_disk`."""
        assert self.supervised(broker_id).pid is None, "kill it first"
        folder = self.spec.slot(broker_id).folder
        aside = self._aside(broker_id)
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)

    def restore_disk(self, broker_id: int) -> None:
        """Restore the disk from before `wipe_disk`; the broker must be down."""
        assert self.supervised(broker_id).pid is None, "kill it first"
        folder = self.spec.slot(broker_id).folder
        shutil.rmtree(folder, ignore_errors=True)
        self._aside(broker_id).rename(folder)

    def kill_zookeeper(self) -> None:
        """Kill ZooKeeper; it stays down until `restart_zookeeper`."""
        assert self.supervisor is not None and self.supervisor.zookeeper is not None
        self.supervisor.zookeeper.hold()
        kill_and_wait(self.supervisor.zookeeper)

    def restart_zookeeper(self) -> None:
        """Start ZooKeeper again with its data; return when it listens."""
        assert self.supervisor is not None and self.supervisor.zookeeper is not None
        self.supervisor.zookeeper.release()
        self.supervisor.zookeeper.wait_ready()

    def make_whole(self) -> None:
        """For the next test: start all brokers, wait for all replicas and preferred leaders.

        It does not restore disks: only the test knows which one is right.
        """
        assert self.supervisor is not None, "not started"
        if self.supervisor.zookeeper is not None:
            self.restart_zookeeper()
        for broker_id in self.supervisor.brokers:
            self.resume(broker_id)
            self.restart(broker_id)
        with self.admin() as admin:
            self.wait_until(lambda: _all_rows(admin, _is_full), "every replica in its ISR")
            # Otherwise the leaders would change later, during another test.
            if not _all_rows(admin, _has_preferred_leader):
                admin.elect_leaders("preferred")
            self.wait_until(lambda: _all_rows(admin, _has_preferred_leader), "preferred leaders")

    # Queries.

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        """An admin client of the SDK."""
        with Admin(self.bootstrap) as admin:
            yield admin

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int = -1, **configs: str
    ) -> str:
        """Create a topic; configs as keywords with _ for dots. Returns the name."""
        rows = {key.replace("_", "."): value for key, value in configs.items()}
        with self.admin() as admin:
            admin.create_topics([NewTopic(name, partitions, replication_factor, rows)])
        return name

    def describe(self, topic: str, partition: int = 0) -> PartitionDescription:
        """A partition by the metadata."""
        with self.admin() as admin:
            return admin.describe_topics([topic])[topic].partitions[partition]

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The leader of a partition; waits until there is one."""
        self.wait_until(lambda: self.describe(topic, partition).leader >= 0, f"leader of {topic}")
        return self.describe(topic, partition).leader

    def wait_isr(self, topic: str, size: int, partition: int = 0) -> None:
        """Wait until the ISR has `size` members."""
        wanted = f"ISR of {topic}-{partition} of {size}"
        self.wait_until(lambda: len(self.describe(topic, partition).isr) == size, wanted)

    def status(self, broker_id: int) -> dict[str, Any]:
        """A broker's status document."""
        with BrokerStatusClient(self.spec.slot(broker_id).address) as client:
            document: dict[str, Any] = json.loads(client.status().document)
            return document

    def log_text(self, broker_id: int) -> str:
        """The log of a broker."""
        return (self.spec.logs / f"broker-{broker_id}.log").read_text(errors="replace")

    @staticmethod
    def wait_until(
        holds: Callable[[], bool], what: str = "condition", timeout_s: float = WAIT_S
    ) -> float:
        """Poll until the condition holds; the seconds it took. Fails after `timeout_s`."""
        started = time.monotonic()
        while not holds():
            assert time.monotonic() - started < timeout_s, f"{what}: not within {timeout_s} s"
            time.sleep(POLL_S)
        return time.monotonic() - started

    def _aside(self, broker_id: int) -> Path:
        return self.directory / f"aside-{broker_id}"


def _all_rows(admin: Admin, holds: Callable[[PartitionDescription], bool]) -> bool:
    topics = admin.describe_topics().values()
    return all(holds(row) for topic in topics for row in topic.partitions)


def _is_full(row: PartitionDescription) -> bool:
    return row.leader >= 0 and set(row.isr) == set(row.replicas)


def _has_preferred_leader(row: PartitionDescription) -> bool:
    return row.leader == row.replicas[0]
