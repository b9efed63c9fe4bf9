"""The cluster under faults, its clients, and the parts of it that faults hold."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headwater.client.admin.client import Admin
from headwater.client.values import PartitionDescription
from headwater.errors import HeadwaterError
from integration.cluster import LocalCluster
from soak.history import History
from soak.network import Network, SeparateHosts, run
from soak.workload import Load

HOOKS = Path(__file__).parent / "hooks"
DOWN_WAIT_S = 30.0
WHOLE_S = 60.0
ASK_TIMEOUTS_MS = {
    "request_timeout_ms": 2_000,
    "default_api_timeout_ms": 4_000,
    "bootstrap_timeout_ms": 3_000,
}
DISK_BYTES = 4 << 30
"""The size of the disk that can be full. tmpfs takes memory only for written data."""
DISK_SLACK_BYTES = 256 << 10
ZOOKEEPER_PART = "zookeeper"
SHORT_TIMES = {
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "2000",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "6",
    "log.flush.offset.checkpoint.interval.ms": "5000",
}
"""Short times, so that a fault of seconds exceeds every timeout."""


class NotNowError(Exception):
    """The precondition of a fault does not hold at the moment; another one is chosen."""


@dataclass(slots=True)
class World:
    """A cluster under faults. `taken`: the brokers and parts that faults hold."""

    cluster: LocalCluster
    history: History
    random: random.Random
    network: Network | None
    mounted: frozenset[int]
    """Brokers with a mount of their own as disk, which can be full."""
    disks: Path
    topic: str = "soak"
    partitions: int = 6
    taken: set[int | str] = field(default_factory=set)
    load: Load | None = None

    @property
    def brokers(self) -> range:
        """All broker ids."""
        return range(self.cluster.spec.brokers)

    def free_brokers(self) -> list[int]:
        """The brokers that no fault holds."""
        return [b for b in self.brokers if b not in self.taken]

    def choose(self, among: list[int] | None = None) -> int:
        """One free broker. Raises NotNowError."""
        free = [b for b in self.free_brokers() if among is None or b in among]
        if not free:
            raise NotNowError("no free broker")
        return self.random.choice(free)

    # The state of the cluster, from brokers that no fault holds.

    def ask(self, question: Callable[[Admin], Any]) -> Any:
        """Ask with the SDK's admin client. Raises NotNowError."""
        free = self.free_brokers()
        if not free:
            raise NotNowError("nobody to ask")
        servers = ",".join(self.cluster.spec.slot(b).address for b in free)
        try:
            with Admin(servers, **ASK_TIMEOUTS_MS) as admin:
                return question(admin)
        except (HeadwaterError, OSError) as error:
            raise NotNowError(f"no answer: {error}") from error

    def described(self) -> tuple[PartitionDescription, ...]:
        """The partitions of the workload's topic."""
        rows: tuple[PartitionDescription, ...] = tuple(
            self.ask(lambda admin: admin.describe_topics([self.topic]))[self.topic].partitions
        )
        return rows

    def leaders(self) -> list[int]:
        """The leader of each partition; -1 for none."""
        return [row.leader for row in self.described()]

    def controller(self) -> int:
        """The controller's broker id; -1 for none."""
        found: int = self.ask(lambda admin: admin.describe_cluster()).controller_id
        return found

    def is_whole(self) -> bool:
        """Whether every replica of every topic is in its ISR."""
        try:
            topics = self.ask(lambda admin: admin.describe_topics())
        except NotNowError:
            return False
        rows = [row for topic in topics.values() for row in topic.partitions]
        return bool(rows) and all(len(row.isr) == len(row.replicas) for row in rows)

    def wait_whole(self, timeout_s: float) -> bool:
        """Wait for `is_whole`; false after the timeout."""
        deadline = time.monotonic() + timeout_s
        while not self.is_whole():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.1)
        return True

    def outline(self) -> str:
        """Leaders and ISR as each broker sees them, for a cluster that is stuck."""
        lines = []
        for broker_id in self.brokers:
            try:
                status = self.cluster.status(broker_id)
            except Exception as error:  # noqa: BLE001 - that it does not answer is what is told
                lines.append(f"  broker {broker_id} does not tell its status: {error!r}"[:300])
                continue
            lines += [
                f"  broker {broker_id}: {row['topic']}-{row['partition']} leader {row['leader']} "
                f"epoch {row['leader_epoch']} ISR {row['isr']} pending {row['pending_isr']} "
                f"high watermark {row['high_watermark']} end {row['log_end_offset']} "
                f"{row['offline_reason']}"
                for row in status["hosted"]["partitions"]
            ]
            lines += [
                f"  broker {broker_id} tells clients: {topic['topic']}-{row['partition']} leader "
                f"{row['leader']} epoch {row['leader_epoch']} ISR {row['isr']}"
                for topic in status["topics"]
                for row in topic["partitions"]
            ]
        try:
            lines.append(f"  an admin client is told: {self.ask(lambda a: a.describe_topics())}")
        except NotNowError as error:
            lines.append(f"  an admin client is told nothing: {error}")
        return "\n".join(lines)

    # Actions on a broker, whatever other faults it has.

    def kill(self, broker_id: int) -> None:
        """SIGKILL. The broker stays down until `start`."""
        broker = self.cluster.supervised(broker_id)
        broker.hold()
        pid = broker.pid
        broker.send(signal.SIGKILL)
        if pid is not None and not broker.wait_down(pid, DOWN_WAIT_S):
            raise RuntimeError(f"broker {broker_id} survived SIGKILL")

    def start(self, *broker_ids: int) -> None:
        """Start brokers that are down. `wait_ready` waits for them, not this method: another fault
        may last, and a broker without ZooKeeper does not become ready."""
        for broker_id in broker_ids:
            self.cluster.supervised(broker_id).release()

    def wait_ready(self) -> None:
        """Wait until every broker is up. Raises ChildFailedError with its last log line."""
        for broker_id in self.brokers:
            self.cluster.supervised(broker_id).wait_ready()

    def wipe(self, broker_id: int) -> None:
        """Empty the disk of a broker that is down."""
        folder = self.cluster.spec.slot(broker_id).folder
        if broker_id in self.mounted:
            for path in folder.iterdir():
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()
        else:
            self.cluster.wipe_disk(broker_id)
            shutil.rmtree(self.cluster.directory / f"aside-{broker_id}")

    def fill_disk(self, broker_id: int) -> None:
        """Fill its disk: the mount shrinks to the size of its contents."""
        folder = self.cluster.spec.slot(broker_id).folder
        for slack in (0, DISK_SLACK_BYTES, 4 * DISK_SLACK_BYTES):
            room = os.statvfs(folder)
            used = (room.f_blocks - room.f_bfree) * room.f_frsize
            try:
                resize(folder, used + slack)
                return
            except RuntimeError:
                continue  # data was written meanwhile: leave some slack
        raise NotNowError("the disk is written too fast to fill it")

    def empty_disk(self, broker_id: int) -> None:
        """Undo `fill_disk`."""
        folder = self.cluster.spec.slot(broker_id).folder
        resize(folder, DISK_BYTES)

    def trouble_disk(self, broker_id: int, trouble: Mapping[str, int] | None) -> None:
        """Make each write of a broker meet this trouble; None: no more trouble."""
        path = self.disks / f"broker-{broker_id}.disk"
        if trouble is None:
            path.unlink(missing_ok=True)
            return
        scratch = path.with_suffix(".new")
        scratch.write_text(json.dumps(trouble))
        scratch.rename(path)

    def signal_zookeeper(self, signum: signal.Signals) -> None:
        """Signal ZooKeeper's JVM, which is a child of its guard process."""
        supervisor = self.cluster.supervisor
        assert supervisor is not None and supervisor.zookeeper is not None
        pid = supervisor.zookeeper.pid
        assert pid is not None, "ZooKeeper is down"
        os.killpg(pid, signum)


def resize(folder: Path, size_bytes: int) -> None:
    """Resize a tmpfs. Without `-i` mount passes options that a user namespace refuses."""
    run("mount", "-i", "-t", "tmpfs", "-o", f"remount,size={size_bytes}", "tmpfs", str(folder))


def build(
    directory: Path,
    history: History,
    options: argparse.Namespace,
    seed: int,
    why_no_network: str,
) -> World:
    """A cluster that is not started yet, with all hooks that are possible here."""
    brokers = 3
    network = None if why_no_network else Network(brokers)
    kind = {} if network is None else {"kind": SeparateHosts}
    cluster = LocalCluster(directory / "cluster", options.base_port, brokers, SHORT_TIMES, **kind)
    disks = directory / "disks"
    disks.mkdir(parents=True)
    mounted = frozenset[int]()
    if network is not None:
        folder = cluster.spec.slot(brokers - 1).folder
        folder.mkdir(parents=True)
        run("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder))
        mounted = frozenset({brokers - 1})
        paths = {f"broker-{b}": network.path(b) for b in range(brokers)}
        os.environ["HEADWATER_SOAK_NETNS"] = json.dumps(paths)
    os.environ["HEADWATER_SOAK_DISKS"] = str(disks)
    os.environ["HEADWATER_SOAK_PLANT"] = options.plant
    others = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = f"{HOOKS}{os.pathsep}{others}" if others else str(HOOKS)
    return World(cluster, history, random.Random(seed), network, mounted, disks)
