"""Manager of brokers that run as Spark jobs: what `Cluster` and `headwater up --spark` start.

One manager runs per cluster, whichever hosts its drivers are on: it holds the node
`/headwater/manager` in the cluster's ZooKeeper, through which operators reach it too.
`broker_job_restarts` starts a lost broker again.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from pyspark import SparkConf
from pyspark.sql import SparkSession

from headwater.clock import Clock
from headwater.errors import HeadwaterError, UsageError
from headwater.local.broker_command import BROKER_COMMAND
from headwater.local.broker_sessions import BrokerSessions
from headwater.local.change_requests import ChangeRequests
from headwater.local.child import log_tail
from headwater.local.child_restarts import SupervisedChild
from headwater.local.cluster_spec import LOOPBACK, ClusterSpec, check_free, check_ports_free
from headwater.local.manager import BrokerState, ManagerState, Progress, silent
from headwater.local.processes import CLUSTER_DIR_VARIABLE, ProcessRef
from headwater.local.secure_cluster import SecureCluster
from headwater.local.services import Services
from headwater.local.supervisor import supervised_zookeeper
from headwater.local.zk_client import NO_SECURITY, ZooKeeperSecurity
from headwater.local.zk_requests import ZkRequests
from headwater.local.zk_session import close_session
from headwater.local.zk_tls import zookeeper_tls_of
from headwater.security.certificates import certificate_facts
from headwater.system import SystemEntropy
from headwater_spark.cluster import interrupts
from headwater_spark.cluster.broker_certificates import BrokerCertificates
from headwater_spark.cluster.broker_job_restarts import READY_TIMEOUT_S, BrokerJobs
from headwater_spark.cluster.broker_settings import BrokerSettings, security_folder
from headwater_spark.cluster.broker_slot import BrokerSlot
from headwater_spark.cluster.broker_task import DRAIN_GRACE_S, BrokerTask
from headwater_spark.cluster.driver_link import (
    LOG_TAIL,
    RESTART,
    SILENCE_S,
    DriverLink,
    Report,
    TaskLink,
)
from headwater_spark.cluster.entry_tokens import EntryTokens
from headwater_spark.cluster.link_channel import driver_context
from headwater_spark.cluster.slot_plan import SlotPlan, plan_slots
from headwater_spark.cluster.spark_jobs import SparkJobs

logger = logging.getLogger(__name__)

RESTART_TIMEOUT_S = 60.0
"""For the check of an interpreter and the drain of a broker."""
LOG_TIMEOUT_S = 10.0
FORMER_BROKERS_S = 30.0
"""How long a start waits for the brokers of a former driver, which drain, to unregister."""
DRIVER = "driver"
MEMORY_LIMIT_KEY = "spark.executor.pyspark.memory"
BIND_ADDRESS_KEY = "spark.driver.bindAddress"
NETWORK_CRYPTO = ("spark.authenticate", "spark.network.crypto.enabled")
LINK_PORT_KEY = "spark.headwater.driver.port"
"""The driver's port for the brokers' tasks, where a firewall needs a fixed one."""


class SparkManager:
    """A `headwater.local.manager.Manager` and `ElasticManager` on a running Spark application."""

    def __init__(
        self,
        spec: ClusterSpec,
        spark: SparkSession,
        clock: Clock,
        *,
        properties: Mapping[str, str] | None = None,
        zookeeper: str | None = None,
        broker_command: tuple[str, ...] = BROKER_COMMAND,
        changed: Callable[[], None] = lambda: None,
        drain_grace_s: float = DRAIN_GRACE_S,
    ) -> None:
        self.spec = spec
        self._spark = spark
        self._clock = clock
        self.properties = dict(properties or {})
        self._broker_command = broker_command
        self._changed = changed
        self._drain_grace_s = drain_grace_s
        self._plan = plan_for(spark, spec.brokers)
        self.external_zookeeper = _ensemble(spec, zookeeper, one_host=self._plan.one_host)
        self._servers = self.external_zookeeper or spec.zookeeper
        self.security = (
            SecureCluster(spec.directory, clock, SystemEntropy()) if spec.secure else None
        )
        """None: the cluster is not secure."""
        self._settings = BrokerSettings(
            self._servers, self.properties, self.security, one_host=self._plan.one_host
        )
        self._services = Services(
            spec,
            clock,
            security=self.security,
            properties=self.properties,
            zookeeper=self._servers,
            changed=changed,
        )
        """On the driver's host: they take no core of the executors."""
        self._zookeeper: SupervisedChild | None = None
        self._zookeeper_tls = zookeeper_tls_of({**dict(spec.properties), **self.properties})
        close = partial(close_session, security=ZooKeeperSecurity(tls=self._zookeeper_tls))
        self._sessions = BrokerSessions(spec.directory / "zookeeper", self._servers, close)
        self._jobs = BrokerJobs(
            clock,
            SparkJobs(spark, self._plan.task_cpus),
            self._sessions,
            self._task,
            self._welcome,
            changed,
            drain_grace_s,
            self._plan.task_cpus or 1,
        )
        self._requests: ZkRequests | None = None
        self._tokens = EntryTokens(SystemEntropy())
        self._link: DriverLink | None = None
        self._fingerprint = ""
        self._certificates: BrokerCertificates | None = None
        self._change = threading.Lock()
        """Held while brokers are started, added, restarted or removed, by one call at a time."""
        self._former_handler: interrupts.Handler = None

    def _slot(self, broker_id: int) -> BrokerSlot:
        slot = self.spec.slot(broker_id)
        log = self.spec.logs / f"{slot.name}.log"
        return BrokerSlot(slot, log, self.spec.host, self._plan.one_host, self._broker_command)

    def start(self, progress: Progress = silent, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return when every broker is ready. Stops everything before it raises HeadwaterError."""
        if self._spark.sparkContext.getConf().get(MEMORY_LIMIT_KEY):
            raise UsageError(
                f"{MEMORY_LIMIT_KEY} is set: brokers would inherit its limit. Unset it and size"
                " spark.executor.memoryOverhead"
            )
        total = 1 + self.spec.brokers
        try:
            with self._change:
                if self._plan.one_host:
                    check_ports_free(self.spec)
                self._start_zookeeper()
                progress("ZooKeeper is ready", 1, total)
                self._secure()
                self._claim()
                self._open_link()
                for slot in self.spec.slots:
                    self._jobs.start(self._slot(slot.broker_id))
                self._jobs.wait_started(progress, total, timeout_s)
                self._services.start(self.state().bootstrap_servers, self._internal_servers())
                self._warn_of_shared_hosts()
                self._former_handler = interrupts.spare_groups(
                    self._spark.sparkContext, self._groups
                )
        except BaseException:
            self.stop()
            raise

    def state(self) -> ManagerState:
        """The brokers' current addresses and processes."""
        brokers = self._jobs.brokers()
        with self._jobs.state:
            addresses = [f"{b.host}:{b.slot.port}" for b in brokers]
            control = tuple(f"{b.host}:{b.slot.control_port}" for b in brokers)
            processes = [b.process for b in brokers if b.process is not None]
        keeper = self._zookeeper
        if keeper is not None and keeper.pid is not None:
            processes.append(ProcessRef.of("zookeeper", keeper.pid))
        processes += self._services.processes()
        return ManagerState(
            bootstrap_servers=",".join(addresses),
            zookeeper=self._servers,
            control_addresses=control,
            processes=tuple(processes),
            spec=self.spec,
        )

    def _internal_servers(self) -> str:
        """The brokers' addresses for clients with a certificate; empty unless it is secure."""
        with self._jobs.state:
            slots = [(b.host, b.slot.internal_port) for b in self._jobs.brokers()]
        return ",".join(f"{host}:{port}" for host, port in slots if port)

    def broker_states(self) -> tuple[BrokerState, ...]:
        """Every broker, in the order of ids."""
        with self._jobs.state:
            return tuple(b.state() for b in self._jobs.brokers())

    def wait_all_ready(self, timeout_s: float) -> bool:
        """True once every broker serves; False after `timeout_s`."""
        return self._jobs.wait_all_ready(timeout_s)

    def log_tail(self, broker_id: int, size: int) -> str:
        """The last `size` bytes of a broker's log, from its host. Raises HeadwaterError."""
        broker = self._jobs.broker(broker_id)
        if self._plan.one_host:
            return log_tail(broker.log_path, size)
        return str(self._task_of(broker).ask(LOG_TAIL, LOG_TIMEOUT_S, size=size)["text"])

    def add_brokers(self, count: int, progress: Progress) -> None:
        """Submit the jobs of brokers with the lowest free ids, one after the other.

        Raises HeadwaterError; brokers that were ready before one failed stay in the cluster.
        """
        with self._change:
            plan_for(self._spark, self.spec.brokers + count)
            added = self.spec.free_ids(count)
            if self._plan.one_host:
                for broker_id in added:
                    check_free(self.spec.host, self.spec.slot(broker_id).ports())
            for done, broker_id in enumerate(added, start=1):
                self._add_broker(broker_id)
                progress(f"broker-{broker_id} is ready", done, count)

    def _add_broker(self, broker_id: int) -> None:
        former, self.spec = self.spec, self.spec.with_broker(broker_id)
        broker = self._slot(broker_id)
        self._jobs.start(broker)
        try:
            self._jobs.wait_ready_again(broker, 0)
        except BaseException:
            self._jobs.remove(broker)
            self.spec = former
            raise
        self._changed()

    def restart_broker(self, broker_id: int, progress: Progress, python: str = "") -> None:
        """Drain a broker and start it again, on the same executor. Raises HeadwaterError.

        With `python`, this interpreter runs the broker, and brokers that are added later.
        """
        with self._change:
            broker = self._jobs.broker(broker_id)
            before = broker.times_ready
            if broker.is_held:
                self._release(broker)
            else:
                rows, link = self._properties(broker), self._task_of(broker)
                link.ask(RESTART, RESTART_TIMEOUT_S, python=python, properties=rows)
                if python:
                    self._broker_command = (python, *self._broker_command[1:])
                    broker.command = self._broker_command
            progress(f"{broker.slot.name} stopped", 1, 2)
            self._jobs.wait_ready_again(broker, before)
            progress(f"{broker.slot.name} is ready", 2, 2)

    def stop_broker(self, broker_id: int, progress: Progress) -> None:
        """Drain a broker and end its job, which `start_broker` submits again."""
        with self._change:
            broker = self._jobs.broker(broker_id)
            with self._jobs.state:
                broker.is_held = True
            self._jobs.end_run(broker)
            progress(f"{broker.slot.name} stopped", 1, 1)

    def start_broker(self, broker_id: int, progress: Progress) -> None:
        """Submit the job of a stopped broker. Raises HeadwaterError."""
        with self._change:
            broker = self._jobs.broker(broker_id)
            before = broker.times_ready
            self._release(broker)
            self._jobs.wait_ready_again(broker, before)
            progress(f"{broker.slot.name} is ready", 1, 1)

    def _release(self, broker: BrokerSlot) -> None:
        """Have the job of a stopped broker submitted again."""
        with self._jobs.state:
            broker.is_held = False
            self._jobs.state.notify_all()

    def remove_broker(self, broker_id: int, progress: Progress) -> None:
        """Drain a broker and take it out of the cluster. Raises HeadwaterError."""
        with self._change:
            broker = self._jobs.broker(broker_id)
            left = self.spec.without_broker(broker_id)
            self._jobs.remove(broker)
            self.spec = left
            self._changed()
            progress(f"{broker.slot.name} is removed", 1, 1)

    def stop(self, progress: Progress = silent) -> None:
        """Drain the brokers and end every process. Safe at any time, safe to repeat."""
        interrupts.restore(self._former_handler)
        self._former_handler = None
        total = 1 + self.spec.brokers
        self._services.stop()
        self._jobs.stop(progress, total)
        if self._certificates is not None:
            self._certificates.close()
        if self._link is not None:
            self._link.close()
        if self._requests is not None:
            self._requests.close()
            self._requests = None
        if self._zookeeper is not None:
            self._zookeeper.ask_to_stop()
            self._zookeeper.finish_stop()
            self._zookeeper = None
        progress("ZooKeeper stopped", total, total)

    def _start_zookeeper(self) -> None:
        if self.external_zookeeper is not None:
            return
        self._zookeeper = supervised_zookeeper(self.spec, self._clock, self._changed)
        self._zookeeper.start()
        self._zookeeper.wait_ready()

    def _secure(self) -> None:
        """Make what a secure cluster needs before its first broker runs."""
        if self.security is None:
            return
        self.security.prepare(self.spec, leaves=False)
        self._warn_of_an_open_network()
        own_server = self.external_zookeeper is None
        self.security.ensure_admin(self._servers, own_server=own_server, tls=self._zookeeper_tls)
        self._certificates = BrokerCertificates(self.security.folder, self._clock, self._links)
        self._certificates.start()

    def _warn_of_an_open_network(self) -> None:
        """Warn when who reads Spark's traffic could take a broker's place by its entry token."""
        conf = self._spark.sparkContext.getConf()
        if self._plan.one_host or all(conf.get(key) == "true" for key in NETWORK_CRYPTO):
            return
        logger.warning(
            "Spark ships the brokers' entry tokens in the clear: set %s",
            " and ".join(f"{key}=true" for key in NETWORK_CRYPTO),
        )

    def _links(self) -> list[tuple[str, TaskLink]]:
        """The connections to the tasks that run now, by the broker's name."""
        with self._jobs.state:
            found = [(b.slot.name, b.link) for b in self._jobs.brokers()]
        return [(name, link) for name, link in found if link is not None]

    def _claim(self) -> None:
        """Become the one driver of the cluster, and wait until no former broker is registered."""
        own = {
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "application": self._spark.sparkContext.applicationId,
            "directory": str(self.spec.directory),
        }
        shown = NO_SECURITY if self.security is None else self.security.zookeeper()
        shown = replace(shown, tls=self._zookeeper_tls)
        requests = ZkRequests(self._servers, own, ChangeRequests(self), shown)
        requests.open()
        self._requests = requests
        if not self._plan.one_host:
            self._jobs.homes = requests.homes
        if not self._plan.one_host:
            # Brokers of a lost driver drain on their hosts: a live one's session stays open.
            requests.wait_unregistered(self.spec.broker_ids, FORMER_BROKERS_S)
        self._sessions.close_leftovers()
        left = requests.wait_unregistered(self.spec.broker_ids, FORMER_BROKERS_S)
        if left:
            raise UsageError(
                f"brokers {', '.join(map(str, left))} are registered in ZooKeeper {self._servers}:"
                " stop them, or use their cluster with Cluster.attach"
            )

    def _warn_of_shared_hosts(self) -> None:
        """Warn when brokers share a host: replicas of one partition may be on one host."""
        hosts = {b.host for b in self._jobs.brokers()}
        if not self._plan.one_host and len(hosts) < self.spec.brokers:
            logger.warning(
                "%d brokers run on %d hosts (%s): a topic with a higher replication factor has"
                " several replicas on one host",
                self.spec.brokers,
                len(hosts),
                ", ".join(sorted(hosts)),
            )

    def _groups(self) -> tuple[str, ...]:
        return tuple(b.group for b in self._jobs.brokers())

    def _task_of(self, broker: BrokerSlot) -> TaskLink:
        """The connection to the broker's task. Raises HeadwaterError while none runs."""
        link = broker.link
        if link is None:
            raise HeadwaterError(
                f"no Spark task of {broker.slot.name} runs now: try again when it is back"
            )
        return link

    def _open_link(self) -> None:
        conf = self._spark.sparkContext.getConf()
        host = conf.get(BIND_ADDRESS_KEY) or self._driver_host
        tls = None
        if self.security is not None:
            identity = self.security.folder.identity(DRIVER, (self._driver_host,))
            self._fingerprint = certificate_facts(identity.certificate).sha256
            tls = driver_context(identity)
        self._link = DriverLink(
            LOOPBACK if self._plan.one_host else host,
            self._tokens.admits,
            self._jobs.on_report,
            self._jobs.on_lost,
            port=int(conf.get(LINK_PORT_KEY) or 0),
            silence_s=network_timeout_s(self._spark),
            tls=tls,
        )

    @property
    def _driver_host(self) -> str:
        """The driver's address for tasks."""
        return LOOPBACK if self._plan.one_host else str(self._spark.conf.get("spark.driver.host"))

    def _properties(self, broker: BrokerSlot) -> list[tuple[str, str]]:
        return list(self._settings.rows(self.spec, broker.slot).items())

    def _welcome(self, broker: BrokerSlot, report: Report) -> Report:
        """What a broker's task gets when it has shown its entry token. Raises UsageError."""
        facts: Report = {"properties": self._properties(broker)}
        if self._certificates is not None:
            host = self._settings.host_of(broker.slot, str(report.get("host")))
            request = str(report.get("signing_request"))
            facts |= self._certificates.answer(broker.slot.name, host, request)
        return facts

    def _task(self, broker: BrokerSlot) -> BrokerTask:
        assert self._link is not None
        slot = broker.slot
        return BrokerTask(
            broker_id=slot.broker_id,
            name=slot.name,
            command=broker.command,
            config_path=str(self.spec.directory / "conf" / f"{slot.name}.properties"),
            log_path=str(broker.log_path),
            driver_host=self._driver_host,
            driver_port=self._link.port,
            token=self._tokens.issue(slot.broker_id),
            fingerprint=self._fingerprint,
            security_folder=str(security_folder(self.spec, slot)) if self._fingerprint else "",
            environment={CLUSTER_DIR_VARIABLE: str(self.spec.directory), "GRPC_VERBOSITY": "ERROR"},
            drain_grace_s=self._drain_grace_s,
            silence_s=network_timeout_s(self._spark),
        )


def _ensemble(spec: ClusterSpec, zookeeper: str | None, *, one_host: bool) -> str | None:
    """The external ensemble to use; None for the embedded one. Raises UsageError."""
    found = zookeeper or spec.external_zookeeper or None
    if found is None and not one_host:
        raise UsageError(
            "executors on other machines can't reach the embedded ZooKeeper: name an ensemble,"
            " Cluster.start(..., zookeeper='host:2181')"
        )
    return found


def plan_for(spark: SparkSession, brokers: int) -> SlotPlan:
    """The slot plan of this session's master. Raises UsageError when the brokers do not fit."""
    conf = spark.sparkContext.getConf()
    cores = conf.get("spark.executor.cores")
    return plan_slots(
        spark.sparkContext.master,
        brokers,
        cores_here=os.cpu_count() or 1,
        executor_cores=int(cores) if cores else None,
        executors=_executors(conf),
    )


def _executors(conf: SparkConf) -> int | None:
    """The number of executors that the configuration fixes; None if Spark decides it."""
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return None
    if instances := conf.get("spark.executor.instances"):
        return int(instances)
    cores, total = conf.get("spark.executor.cores"), conf.get("spark.cores.max")
    return int(total) // int(cores) if cores and total else None


def network_timeout_s(spark: SparkSession) -> float:
    """After so long a silence Spark counts an executor as lost."""
    conf = spark.sparkContext._jsc.sc().conf()
    return float(conf.getTimeAsSeconds("spark.network.timeout", f"{SILENCE_S:.0f}s"))
