"""Runs a whole cluster on this machine: ZooKeeper first, then the brokers, all of them kept.

Used by `headwater up` (inside its daemon) and by the tests (inside pytest).
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headwater.clock import Clock
from headwater.errors import HeadwaterError
from headwater.local.broker_sessions import BrokerSessions
from headwater.local.child import ChildSpec, rotate_if_large
from headwater.local.cluster_spec import ClusterSpec, Slot, check_ports_free
from headwater.local.manager import ManagerState, Progress
from headwater.local.processes import CLUSTER_DIR_VARIABLE, ProcessRef
from headwater.local.supervised_child import DRAIN_GRACE_S, SupervisedChild
from headwater.local.zookeeper import zookeeper_spec

BROKER_COMMAND = (sys.executable, "-P", "-m", "headwater_broker")
LOG_CHECK_EVERY_S = 5.0
OFFSETS_PARTITIONS = 8
REPLICATION_FACTOR_MAX = 3


class Supervisor:
    """A `headwater.local.manager.Manager` of plain local processes."""

    def __init__(
        self,
        spec: ClusterSpec,
        clock: Clock,
        *,
        properties: Mapping[str, str] | None = None,
        broker_command: tuple[str, ...] = BROKER_COMMAND,
        changed: Callable[[], None] = lambda: None,
        drain_grace_s: float = DRAIN_GRACE_S,
    ) -> None:
        self.spec = spec
        self.brokers: dict[int, SupervisedChild] = {}
        self.zookeeper: SupervisedChild | None = None
        self._clock = clock
        self._properties = dict(properties or {})
        self._broker_command = broker_command
        self._changed = changed
        self._drain_grace_s = drain_grace_s
        self._sessions = BrokerSessions(spec.directory / "zookeeper", spec.zookeeper)
        self._stopped = threading.Event()
        self._log_keeper = threading.Thread(target=self._keep_logs, name="logs", daemon=True)

    def start(self, progress: Progress) -> None:
        """Return when every broker is ready. Raises HeadwaterError, having stopped everything."""
        total = 1 + self.spec.brokers
        try:
            check_ports_free(self.spec)
            self._log_keeper.start()
            if not self.spec.external_zookeeper:
                self._start_zookeeper()
            progress("ZooKeeper is ready", 1, total)
            self._sessions.close_leftovers()
            for slot in self.spec.slots:
                self.brokers[slot.broker_id] = self._start_broker(slot)
            for done, keeper in enumerate(self.brokers.values(), start=2):
                keeper.wait_ready()
                progress(f"{keeper.spec.name} is ready", done, total)
        except BaseException:
            self.stop(lambda *_: None)
            raise

    def state(self) -> ManagerState:
        """What runs now."""
        keepers = [self.zookeeper, *self.brokers.values()]
        pids = [(k.spec.name, k.pid) for k in keepers if k is not None]
        return ManagerState(
            bootstrap_servers=self.spec.bootstrap_servers,
            zookeeper=self.spec.zookeeper,
            control_addresses=tuple(s.control_address for s in self.spec.slots),
            processes=tuple(ProcessRef.of(name, pid) for name, pid in pids if pid is not None),
        )

    def stop(self, progress: Progress) -> None:
        """Drain all brokers at once, then end ZooKeeper, which they need to say good-bye."""
        total = 1 + len(self.brokers)
        for keeper in self.brokers.values():
            keeper.ask_to_stop()
        for done, keeper in enumerate(self.brokers.values(), start=1):
            keeper.finish_stop(self._drain_grace_s)
            progress(f"{keeper.spec.name} stopped", done, total)
        if self.zookeeper is not None:
            self.zookeeper.ask_to_stop()
            self.zookeeper.finish_stop()
            progress("ZooKeeper stopped", total, total)
        self._stopped.set()

    def _start_zookeeper(self) -> None:
        self.zookeeper = keep_zookeeper(self.spec, self._clock, self._changed)
        self.zookeeper.start()
        self.zookeeper.wait_ready()

    def _start_broker(self, slot: Slot) -> SupervisedChild:
        config = self._write_properties(slot)
        child = ChildSpec(
            name=slot.name,
            command=(*self._broker_command, "--config", str(config)),
            log_path=self.spec.logs / f"{slot.name}.log",
            environment={"GRPC_VERBOSITY": "ERROR"},
        )

        def ready(told: dict[str, Any]) -> None:
            self._sessions.held_by(slot.name, told)
            self._changed()

        def gone(code: int) -> None:
            if code == 0:  # it said good-bye to ZooKeeper itself
                self._sessions.forget(slot.name)
            else:
                self._sessions.close(slot.name)
            self._changed()

        keeper = SupervisedChild(
            marked(child, self.spec), self._clock, on_ready=ready, on_gone=gone
        )
        keeper.start()
        return keeper

    def _write_properties(self, slot: Slot) -> Path:
        path = self.spec.directory / "conf" / f"{slot.name}.properties"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = {**broker_properties(self.spec, slot), **self._properties}
        path.write_text("".join(f"{key}={value}\n" for key, value in rows.items()))
        return path

    def _keep_logs(self) -> None:
        while not self._stopped.wait(LOG_CHECK_EVERY_S):
            for path in self.spec.logs.glob("*.log"):
                try:
                    rotate_if_large(path)
                except OSError as error:
                    print(f"cannot rotate {path}: {error}", file=sys.stderr)


def keep_zookeeper(spec: ClusterSpec, clock: Clock, changed: Callable[[], None]) -> SupervisedChild:
    """The embedded ZooKeeper of a cluster, not started yet. Raises UsageError without Java."""
    folder = spec.directory / "zookeeper"
    log = spec.logs / "zookeeper.log"
    child = zookeeper_spec(folder, spec.zookeeper_port, log, spec.zookeeper_host)
    return SupervisedChild(marked(child, spec), clock, on_gone=lambda _code: changed())


def marked(child: ChildSpec, spec: ClusterSpec) -> ChildSpec:
    """The child with the cluster's mark in its environment, by which `down` finds it."""
    mark = {CLUSTER_DIR_VARIABLE: str(spec.directory)}
    return replace(child, environment={**child.environment, **mark})


def broker_properties(spec: ClusterSpec, slot: Slot) -> dict[str, str]:
    """The properties of one broker of a local cluster, in Kafka's names."""
    copies = str(min(REPLICATION_FACTOR_MAX, spec.brokers))
    return {
        "broker.id": str(slot.broker_id),
        "cluster.id": spec.cluster_id,
        "log.dirs": str(slot.folder),
        "listeners": f"PLAINTEXT://{slot.host}:{slot.port}",
        "advertised.listeners": f"PLAINTEXT://{slot.host}:{slot.port}",
        "control.listener": slot.control_address,
        "status.listener": f"{slot.host}:{slot.status_port}",
        "zookeeper.connect": spec.zookeeper,
        "headwater.tables.uri": (spec.directory / "tables").as_uri(),
        "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
        "offsets.topic.replication.factor": copies,
        "group.initial.rebalance.delay.ms": "0",  # as Kafka's own development settings
        "default.replication.factor": copies,
        **dict(spec.properties),
    }


def kill_and_wait(keeper: SupervisedChild, signum: signal.Signals = signal.SIGKILL) -> None:
    """End a broker's process; returns once its registration is closed. Raises if it lives on."""
    pid = keeper.pid
    keeper.send(signum)
    if pid is not None and not keeper.wait_down(pid):
        raise HeadwaterError(f"{keeper.spec.name} (pid {pid}) survived {signum.name}")
