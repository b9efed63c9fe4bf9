"""`LocalCluster`: a real cluster of this machine for tests, with everything that can befall one.

    cluster = LocalCluster(tmp_path, base_port, brokers=3)
    cluster.start()
    cluster.kill_broker(0)          # SIGKILL; stays down until restart(0)
    cluster.wipe_disk(0)            # set aside; restore_disk(0) brings it back
    cluster.restart(0)
    cluster.make_whole()            # after a test, where the next one gets the same cluster

The same supervisor as `headwater up` runs it, inside the test's process.
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
from headwater.client.control import ControlClient
from headwater.client.values import NewTopic, PartitionDescription
from headwater.local import processes
from headwater.local.broker_sessions import CloseSession
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.manager import silent
from headwater.local.supervised_child import SupervisedChild
from headwater.local.supervisor import Supervisor, kill_and_wait
from headwater.local.zk_session import close_session
from headwater.system import SystemClock

CLUSTER_ID = "hwTestClusterAAAAAAAAAA"
WAIT_S = 30.0
POLL_S = 0.02
DRAIN_GRACE_S = 8.0
KEEPS = {"log.retention.ms": "-1"}
"""Records of tests carry times of years ago: Kafka's seven days would take them at any moment."""


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
    ) -> None:
        """`kind` decides on hosts, ports and folders; `close_session` closes a dead broker's."""
        self._close_session = close_session
        self.directory = directory
        self.spec = kind(directory, CLUSTER_ID, brokers, base_port)
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
        """Start everything; data found in the folder is served again."""
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
        """Drain and end everything, paused and held brokers too; check that nothing is left."""
        if self.supervisor is None:
            return
        for keeper in self.supervisor.brokers.values():
            keeper.send(signal.SIGCONT)
        self.supervisor.stop(silent)
        self.supervisor = None
        left = processes.of_cluster(self.directory)
        assert left == [], f"left running: {left}"

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(self, *_error: object) -> None:
        self.stop()

    # What can befall a broker.

    def supervised(self, broker_id: int) -> SupervisedChild:
        """What keeps one broker running."""
        assert self.supervisor is not None, "not started"
        return self.supervisor.brokers[broker_id]

    def pid(self, broker_id: int) -> int:
        """Its process id now."""
        pid = self.supervised(broker_id).pid
        assert pid is not None, f"broker {broker_id} is down"
        return pid

    def kill_broker(
        self, broker_id: int, signum: signal.Signals = signal.SIGKILL, *, restart: bool = False
    ) -> None:
        """End it the hard way; returns once its registration is gone. Stays down by default."""
        keeper = self.supervised(broker_id)
        if not restart:
            keeper.hold()
        kill_and_wait(keeper, signum)

    def stop_broker(self, broker_id: int) -> None:
        """Drain it (controlled shutdown); held down until `restart`."""
        keeper, pid = self.supervised(broker_id), self.pid(broker_id)
        keeper.drain()
        assert keeper.wait_down(pid, WAIT_S), f"broker {broker_id} does not drain"

    def restart(self, broker_id: int) -> None:
        """Start a broker that is held down; returns when it is ready."""
        keeper = self.supervised(broker_id)
        keeper.release()
        keeper.wait_ready()

    def pause(self, broker_id: int) -> None:
        """SIGSTOP: it hangs, its connections and session stay."""
        self.supervised(broker_id).send(signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        """SIGCONT."""
        self.supervised(broker_id).send(signal.SIGCONT)

    def wipe_disk(self, broker_id: int) -> None:
        """Give a broker that is down an empty disk; the old one is set aside."""
        assert self.supervised(broker_id).pid is None, "kill it first"
        folder = self.spec.slot(broker_id).folder
        aside = self._aside(broker_id)
        shutil.rmtree(aside, ignore_errors=True)
        folder.rename(aside)

    def restore_disk(self, broker_id: int) -> None:
        """Bring the disk back that `wipe_disk` set aside; the broker must be down."""
        assert self.supervised(broker_id).pid is None, "kill it first"
        folder = self.spec.slot(broker_id).folder
        shutil.rmtree(folder, ignore_errors=True)
        self._aside(broker_id).rename(folder)

    def kill_zookeeper(self) -> None:
        """SIGKILL it; held down until `restart_zookeeper`."""
        assert self.supervisor is not None and self.supervisor.zookeeper is not None
        self.supervisor.zookeeper.hold()
        kill_and_wait(self.supervisor.zookeeper)

    def restart_zookeeper(self) -> None:
        """Start it again on its data; returns when it listens."""
        assert self.supervisor is not None and self.supervisor.zookeeper is not None
        self.supervisor.zookeeper.release()
        self.supervisor.zookeeper.wait_ready()

    def make_whole(self) -> None:
        """For the next test: all runs, all replicas are in sync, the preferred ones lead.

        A disk that was set aside stays so: only the test knows which of the two is the right one.
        """
        assert self.supervisor is not None, "not started"
        if self.supervisor.zookeeper is not None:
            self.restart_zookeeper()
        for broker_id in self.supervisor.brokers:
            self.resume(broker_id)
            self.restart(broker_id)
        with self.admin() as admin:
            self.wait_until(lambda: _all_rows(admin, _is_full), "every replica in its ISR")
            # Leaders that move home later, by themselves, would do so under another test.
            if not _all_rows(admin, _is_led_at_home):
                admin.elect_leaders("preferred")
            self.wait_until(lambda: _all_rows(admin, _is_led_at_home), "preferred leaders")

    # What the tests ask.

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        """The SDK's admin client."""
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
        """A partition as metadata tells it."""
        with self.admin() as admin:
            return admin.describe_topics([topic])[topic].partitions[partition]

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Its leader; waits until there is one."""
        self.wait_until(lambda: self.describe(topic, partition).leader >= 0, f"leader of {topic}")
        return self.describe(topic, partition).leader

    def wait_isr(self, topic: str, size: int, partition: int = 0) -> None:
        """Wait until the ISR has `size` members."""
        wanted = f"ISR of {topic}-{partition} of {size}"
        self.wait_until(lambda: len(self.describe(topic, partition).isr) == size, wanted)

    def status(self, broker_id: int) -> dict[str, Any]:
        """A broker's status document."""
        with ControlClient(self.spec.slot(broker_id).control_address) as client:
            document: dict[str, Any] = json.loads(client.status().document)
            return document

    def log_text(self, broker_id: int) -> str:
        """What a broker has logged."""
        return (self.spec.logs / f"broker-{broker_id}.log").read_text(errors="replace")

    @staticmethod
    def wait_until(
        holds: Callable[[], bool], what: str = "condition", timeout_s: float = WAIT_S
    ) -> float:
        """Poll until it holds; the seconds it took. Fails with `what` after `timeout_s`."""
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


def _is_led_at_home(row: PartitionDescription) -> bool:
    return row.leader == row.replicas[0]
