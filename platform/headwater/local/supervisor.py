"""`Supervisor`: runs ZooKeeper and the brokers of a cluster as child processes on this machine.

`headwater up` runs it inside its daemon, tests run it inside pytest.
"""

from __future__ import annotations

import shutil
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from headwater.clock import Clock
from headwater.errors import HeadwaterError, UsageError
from headwater.local.broker_command import BROKER_COMMAND, with_python
from headwater.local.broker_sessions import BrokerSessions, CloseSession
from headwater.local.child import ChildSpec, log_tail, rotate_if_large
from headwater.local.child_restarts import DRAIN_GRACE_S, SupervisedChild
from headwater.local.cluster_spec import ClusterSpec, Slot, check_free, check_ports_free
from headwater.local.data_folders import read_properties, replicas
from headwater.local.manager import BrokerState, ManagerState, Progress
from headwater.local.private_file import write_private
from headwater.local.processes import CLUSTER_DIR_VARIABLE, ProcessRef
from headwater.local.secure_cluster import SecureCluster, listener_properties
from headwater.local.services import Services
from headwater.local.zk_client import ZooKeeperSecurity
from headwater.local.zk_session import close_session
from headwater.local.zk_tls import zookeeper_tls_of
from headwater.local.zookeeper import zookeeper_spec
from headwater.system import SystemEntropy

OWN_PROPERTIES = ".own.properties"
"""Beside a broker's properties: the operator's, for this broker alone, read at each start that the
supervisor is asked for."""
LOG_CHECK_EVERY_S = 5.0
RENEWAL_EVERY_S = 3_600.0
OFFSETS_PARTITIONS = 8
TRANSACTION_STATE_PARTITIONS = 8
REPLICATION_FACTOR_MAX = 3


class Supervisor:
    """A `headwater.local.manager.Manager` and `ElasticManager` of local processes."""

    def __init__(
        self,
        spec: ClusterSpec,
        clock: Clock,
        *,
        properties: Mapping[str, str] | None = None,
        broker_command: tuple[str, ...] = BROKER_COMMAND,
        changed: Callable[[], None] = lambda: None,
        drain_grace_s: float = DRAIN_GRACE_S,
        close: CloseSession = close_session,
        before_brokers: Callable[[ZooKeeperSecurity], None] = lambda _security: None,
    ) -> None:
        """`close` closes the ZooKeeper session of a broker that has died. `before_brokers` is
        called when ZooKeeper serves, with the brokers' credentials there."""
        self.spec = spec
        self.brokers: dict[int, SupervisedChild] = {}
        self.zookeeper: SupervisedChild | None = None
        self._clock = clock
        self._properties = dict(properties or {})
        self._broker_command = broker_command
        self._changed = changed
        self._drain_grace_s = drain_grace_s
        self._before_brokers = before_brokers
        self._zookeeper_tls = zookeeper_tls_of({**dict(spec.properties), **self._properties})
        if self._zookeeper_tls is not None and close is close_session:
            close = partial(close_session, security=ZooKeeperSecurity(tls=self._zookeeper_tls))
        self._sessions = BrokerSessions(spec.directory / "zookeeper", spec.zookeeper, close)
        self._security = (
            SecureCluster(spec.directory, clock, SystemEntropy()) if spec.secure else None
        )
        self._services = Services(
            spec, clock, security=self._security, properties=self._properties, changed=changed
        )
        self._change = threading.Lock()
        """Held while brokers are added or restarted, by one request at a time."""
        self._brokers_lock = threading.Lock()
        self._is_stopping = False
        self._stopped = threading.Event()
        self._log_rotation = threading.Thread(target=self._rotate_logs, name="logs", daemon=True)

    def start(self, progress: Progress) -> None:
        """Return when every broker is ready. Raises HeadwaterError after it has stopped all."""
        total = 1 + self.spec.brokers
        try:
            check_ports_free(self.spec)
            self._log_rotation.start()
            if not self.spec.external_zookeeper:
                self._start_zookeeper()
            progress("ZooKeeper is ready", 1, total)
            if self._security is not None:
                self._security.prepare(self.spec)
                guarded = self._security.zookeeper()
                self._before_brokers(replace(guarded, tls=self._zookeeper_tls))
                own_server = not self.spec.external_zookeeper
                self._security.ensure_admin(
                    self.spec.zookeeper, own_server=own_server, tls=self._zookeeper_tls
                )
            else:
                self._before_brokers(ZooKeeperSecurity(tls=self._zookeeper_tls))
            self._sessions.close_leftovers()
            for slot in self.spec.slots:
                self._start_broker(self.spec, slot)
            for done, broker in enumerate(self.brokers.values(), start=2):
                broker.wait_ready()
                progress(f"{broker.spec.name} is ready", done, total)
            self._services.start(self.spec.bootstrap_servers, self.spec.internal_servers)
        except BaseException:
            self.stop(lambda *_: None)
            raise

    def state(self) -> ManagerState:
        """What runs now."""
        children = [self.zookeeper, *self.brokers.copy().values()]
        pids = [(child.spec.name, child.pid) for child in children if child is not None]
        running = tuple(ProcessRef.of(name, pid) for name, pid in pids if pid is not None)
        return ManagerState(
            bootstrap_servers=self.spec.bootstrap_servers,
            zookeeper=self.spec.zookeeper,
            control_addresses=tuple(s.control_address for s in self.spec.slots),
            processes=(*running, *self._services.processes()),
            spec=self.spec,
        )

    def broker_states(self) -> tuple[BrokerState, ...]:
        """Every broker, in the order of ids."""
        return tuple(
            BrokerState(
                broker_id=broker_id,
                address=self.spec.slot(broker_id).address,
                ready=broker.readiness is not None,
                restarts=broker.restarts,
                pid=broker.pid,
                host=self.spec.host,
                log_path=str(broker.spec.log_path),
                python=broker.spec.command[0],
            )
            for broker_id, broker in sorted(self.brokers.copy().items())
        )

    def log_tail(self, broker_id: int, size: int) -> str:
        """The last `size` bytes of a broker's log. Raises HeadwaterError."""
        return log_tail(self._broker(broker_id).spec.log_path, size)

    def add_brokers(self, count: int, progress: Progress) -> None:
        """Start brokers with the lowest free ids, one after the other. Raises HeadwaterError.

        Brokers that were ready before one failed stay in the cluster.
        """
        with self._change:
            added = [self.spec.slot(broker_id) for broker_id in self.spec.free_ids(count)]
            for slot in added:
                check_free(slot.host, slot.ports())
            for done, slot in enumerate(added, start=1):
                self._add_broker(self.spec.with_broker(slot.broker_id), slot)
                progress(f"{slot.name} is ready", done, count)

    def _add_broker(self, grown: ClusterSpec, slot: Slot) -> None:
        new_folders = [folder for folder in slot.folders if not folder.exists()]
        broker = self._start_broker(grown, slot)
        try:
            broker.wait_ready()
        except BaseException:
            with self._brokers_lock:
                self.brokers.pop(slot.broker_id, None)
            broker.ask_to_stop()
            broker.finish_stop(self._drain_grace_s)
            for folder in new_folders:
                if folder.is_dir() and not replicas(folder):
                    shutil.rmtree(folder)
            raise
        self.spec = grown
        self._changed()

    def restart_broker(self, broker_id: int, progress: Progress, python: str = "") -> None:
        """Drain a broker, start it again, return when it is ready. Raises HeadwaterError.

        With `python`, this interpreter runs the broker, and brokers that are added later.
        """
        with self._change:
            broker = self._broker(broker_id)
            if python:
                self._broker_command = with_python(self._broker_command, python)
                config = broker.spec.command[-2:]
                broker.set_command((*self._broker_command, *config))
            self._write_properties(self.spec, self.spec.slot(broker_id))
            try:
                self._drain(broker)
            finally:
                broker.release()
            progress(f"{broker.spec.name} stopped", 1, 2)
            broker.wait_ready()
            progress(f"{broker.spec.name} is ready", 2, 2)

    def stop_broker(self, broker_id: int, progress: Progress) -> None:
        """Drain a broker; it stays down until `start_broker`. Raises HeadwaterError."""
        with self._change:
            broker = self._broker(broker_id)
            self._drain(broker)
            progress(f"{broker.spec.name} stopped", 1, 1)

    def start_broker(self, broker_id: int, progress: Progress) -> None:
        """Start a broker that was stopped; return when it is ready. Raises HeadwaterError."""
        with self._change:
            broker = self._broker(broker_id)
            broker.release()
            broker.wait_ready()
            progress(f"{broker.spec.name} is ready", 1, 1)

    def remove_broker(self, broker_id: int, progress: Progress) -> None:
        """Drain a broker and take it out of the cluster. Raises HeadwaterError."""
        with self._change:
            broker = self._broker(broker_id)
            left = self.spec.without_broker(broker_id)
            broker.ask_to_stop()
            broker.finish_stop(self._drain_grace_s)
            with self._brokers_lock:
                del self.brokers[broker_id]
            self.spec = left
            self._changed()
            progress(f"{broker.spec.name} is removed", 1, 1)

    def _broker(self, broker_id: int) -> SupervisedChild:
        broker = self.brokers.get(broker_id)
        if broker is None:
            ids = ", ".join(map(str, self.spec.broker_ids))
            raise UsageError(f"no broker {broker_id}: ids are {ids}")
        return broker

    def _drain(self, broker: SupervisedChild) -> None:
        """End the broker's run; it is held afterwards."""
        pid = broker.pid
        broker.drain()
        if pid is not None and not broker.wait_down(pid, self._drain_grace_s):
            kill_and_wait(broker)

    def stop(self, progress: Progress) -> None:
        """End the services, drain all brokers together, then end ZooKeeper, which they need for
        their shutdown."""
        self._services.stop(self._drain_grace_s)
        with self._brokers_lock:
            self._is_stopping = True
            brokers = list(self.brokers.values())
        total = 1 + len(brokers)
        for broker in brokers:
            broker.ask_to_stop()
        for done, broker in enumerate(brokers, start=1):
            broker.finish_stop(self._drain_grace_s)
            progress(f"{broker.spec.name} stopped", done, total)
        if self.zookeeper is not None:
            self.zookeeper.ask_to_stop()
            self.zookeeper.finish_stop()
            progress("ZooKeeper stopped", total, total)
        self._stopped.set()

    def _start_zookeeper(self) -> None:
        self.zookeeper = supervised_zookeeper(self.spec, self._clock, self._changed)
        self.zookeeper.start()
        self.zookeeper.wait_ready()

    def _start_broker(self, spec: ClusterSpec, slot: Slot) -> SupervisedChild:
        config = self._write_properties(spec, slot)
        child = ChildSpec(
            name=slot.name,
            command=(*self._broker_command, "--config", str(config)),
            log_path=self.spec.logs / f"{slot.name}.log",
            environment={"GRPC_VERBOSITY": "ERROR"},
        )

        def ready(readiness: dict[str, Any]) -> None:
            self._sessions.held_by(slot.name, readiness)
            self._changed()

        def gone(code: int) -> None:
            if code == 0:  # it has closed its session itself
                self._sessions.forget(slot.name)
            else:
                self._sessions.close(slot.name)
            self._changed()

        broker = SupervisedChild(
            marked(child, self.spec), self._clock, on_ready=ready, on_gone=gone
        )
        with self._brokers_lock:
            if self._is_stopping:
                raise HeadwaterError(f"{slot.name} is not started: the cluster is stopping")
            self.brokers[slot.broker_id] = broker
            broker.start()
        return broker

    def _write_properties(self, spec: ClusterSpec, slot: Slot) -> Path:
        path = self.spec.directory / "conf" / f"{slot.name}.properties"
        path.parent.mkdir(parents=True, exist_ok=True)
        rows = {**broker_properties(spec, slot), **self._properties}
        if self._security is not None:
            self._security.prepare(spec)
            rows = {**self._security.broker_properties(slot), **rows}
        own = path.with_name(f"{slot.name}{OWN_PROPERTIES}")
        if own.exists():
            rows |= read_properties(own)
        # The file may hold passwords: in process arguments everyone would see them.
        write_private(path, "".join(f"{key}={value}\n" for key, value in rows.items()).encode())
        return path

    def _rotate_logs(self) -> None:
        renewed = self._clock.monotonic()
        while not self._stopped.wait(LOG_CHECK_EVERY_S):
            if self._security is not None and self._clock.monotonic() - renewed >= RENEWAL_EVERY_S:
                renewed = self._clock.monotonic()
                self._renew(self._security)
            for path in self.spec.logs.glob("*.log"):
                try:
                    rotate_if_large(path)
                except OSError as error:
                    print(f"cannot rotate {path}: {error}", file=sys.stderr)

    def _renew(self, security: SecureCluster) -> None:
        """Renew the certificates that are due; brokers read changed files by themselves."""
        try:
            security.prepare(self.spec)
        except (HeadwaterError, OSError) as error:
            print(f"certificates are not renewed: {error}", file=sys.stderr)


def supervised_zookeeper(
    spec: ClusterSpec, clock: Clock, changed: Callable[[], None]
) -> SupervisedChild:
    """The embedded ZooKeeper of a cluster, not started yet. Raises UsageError without Java."""
    folder = spec.directory / "zookeeper"
    log = spec.logs / "zookeeper.log"
    child = zookeeper_spec(folder, spec.zookeeper_port, log, spec.zookeeper_host)
    return SupervisedChild(marked(child, spec), clock, on_gone=lambda _code: changed())


def marked(child: ChildSpec, spec: ClusterSpec) -> ChildSpec:
    """The child with the cluster's folder in its environment, by which `down` finds it."""
    mark = {CLUSTER_DIR_VARIABLE: str(spec.directory)}
    return replace(child, environment={**child.environment, **mark})


def broker_properties(spec: ClusterSpec, slot: Slot) -> dict[str, str]:
    """The properties of one broker of a local cluster, in Kafka's names."""
    factor = str(min(REPLICATION_FACTOR_MAX, spec.brokers))
    plaintext = f"PLAINTEXT://{slot.host}:{slot.port}"
    listeners = listener_properties(slot) if spec.secure else {"listeners": plaintext}
    return {
        "broker.id": str(slot.broker_id),
        "cluster.id": spec.cluster_id,
        "log.dirs": ",".join(map(str, slot.folders)),
        "advertised.listeners": plaintext,
        **listeners,
        "control.listener": slot.control_address,
        "status.listener": f"{slot.host}:{slot.status_port}",
        "zookeeper.connect": spec.zookeeper,
        "headwater.tables.uri": (spec.directory / "tables").as_uri(),
        "offsets.topic.num.partitions": str(OFFSETS_PARTITIONS),
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.num.partitions": str(TRANSACTION_STATE_PARTITIONS),
        "transaction.state.log.replication.factor": factor,
        "group.initial.rebalance.delay.ms": "0",  # as in Kafka's development settings
        "default.replication.factor": factor,
        **dict(spec.properties),
    }


def kill_and_wait(broker: SupervisedChild, signum: signal.Signals = signal.SIGKILL) -> None:
    """End a run by a signal; return when its registration is closed. Raises if it survives."""
    pid = broker.pid
    broker.send(signum)
    if pid is not None and not broker.wait_down(pid):
        raise HeadwaterError(f"{broker.spec.name} (pid {pid}) survived {signum.name}")
