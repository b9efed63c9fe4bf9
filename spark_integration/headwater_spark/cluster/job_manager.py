"""Manager of brokers that run as Spark jobs: one job per broker, resubmitted when it ends.

A driver thread per broker submits a job of one task and waits for its end. The task keeps the
broker process running on its executor and reports to the driver. When the task or its executor
dies, the thread submits the job again, with back-off. When a broker process has ended, the driver
closes its ZooKeeper session at once, so that its partitions get new leaders now and not after the
session timeout.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.resource import ResourceProfileBuilder, TaskResourceRequests
from pyspark.sql import SparkSession

from headwater.clock import Clock
from headwater.errors import HeadwaterError, UsageError
from headwater.local.broker_command import BROKER_COMMAND
from headwater.local.broker_sessions import BrokerSessions
from headwater.local.child import ChildFailedError, ChildSpec
from headwater.local.child_restarts import SupervisedChild
from headwater.local.cluster_spec import LOOPBACK, ClusterSpec, check_ports_free
from headwater.local.manager import ManagerState, Progress, silent
from headwater.local.processes import CLUSTER_DIR_VARIABLE, ProcessRef, wait_gone
from headwater.local.supervisor import broker_properties
from headwater.local.zookeeper import zookeeper_spec
from headwater.system import SystemEntropy
from headwater_spark.cluster import interrupts
from headwater_spark.cluster.broker_slot import BrokerInfo, BrokerSlot
from headwater_spark.cluster.broker_task import (
    DRAIN_GRACE_S,
    HOST_MARK,
    RACK_MARK,
    BrokerTask,
    run_broker,
)
from headwater_spark.cluster.driver_link import SILENCE_S, DriverLink, Report, TaskLink
from headwater_spark.cluster.slot_plan import SlotPlan, plan_slots

logger = logging.getLogger(__name__)

RESUBMIT_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
STEADY_S = 30.0
"""A job that lasted this long resets the back-off."""
READY_TIMEOUT_S = 120.0
ORPHAN_WAIT_S = 30.0
"""How long the manager waits for a broker without a task to drain."""
STOP_SLACK_S = 5.0
MEMORY_LIMIT_KEY = "spark.executor.pyspark.memory"


class SparkManager:
    """A `headwater.local.manager.Manager` on a running Spark application."""

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
        self._context = spark.sparkContext
        self._clock = clock
        self.properties = dict(properties or {})
        self._broker_command = broker_command
        self._changed = changed
        self._drain_grace_s = drain_grace_s
        self._plan = plan_for(spark, spec.brokers)
        self._silence_s = network_timeout_s(spark)
        zookeeper = zookeeper or spec.external_zookeeper or None
        if zookeeper is None and not self._plan.one_host:
            raise UsageError(
                "executors on other machines can't reach the embedded ZooKeeper: name an ensemble,"
                " Cluster.start(..., zookeeper='host:2181')"
            )
        self.external_zookeeper = zookeeper
        self._zookeeper: SupervisedChild | None = None
        servers = zookeeper or spec.zookeeper
        self._sessions = BrokerSessions(spec.directory / "zookeeper", servers)
        self._token = SystemEntropy().randbytes(16).hex()
        self._link: DriverLink | None = None
        self._state = threading.Condition()
        self._stopping = False
        self._threads: list[threading.Thread] = []
        self._slots = {
            slot.broker_id: BrokerSlot(
                slot, spec.logs / f"{slot.name}.log", spec.host, self._plan.one_host
            )
            for slot in spec.slots
        }
        self._former_handler: interrupts.Handler = None

    def start(self, progress: Progress = silent, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return when every broker is ready. Stops everything before it raises HeadwaterError."""
        if self._context.getConf().get(MEMORY_LIMIT_KEY):
            raise UsageError(
                f"{MEMORY_LIMIT_KEY} is set: brokers would inherit its limit. Unset it and size"
                " spark.executor.memoryOverhead"
            )
        total = 1 + self.spec.brokers
        try:
            if self._plan.one_host:
                check_ports_free(self.spec)
            self._start_zookeeper()
            progress("ZooKeeper is ready", 1, total)
            self._sessions.close_leftovers()
            self._open_link()
            for broker in self._slots.values():
                thread = threading.Thread(
                    target=self._keep_job, args=(broker,), name=broker.group, daemon=True
                )
                self._threads.append(thread)
                thread.start()
            self._wait_ready(progress, total, timeout_s)
            self._warn_of_shared_hosts()
            groups = tuple(b.group for b in self._slots.values())
            self._former_handler = interrupts.spare_groups(self._context, groups)
        except BaseException:
            self.stop()
            raise

    def state(self) -> ManagerState:
        """The brokers' current addresses and processes."""
        with self._state:
            brokers = list(self._slots.values())
            addresses = [f"{b.host}:{b.slot.port}" for b in brokers]
            control = tuple(f"{b.host}:{b.slot.control_port}" for b in brokers)
            processes = [b.process for b in brokers if b.process is not None]
        keeper = self._zookeeper
        if keeper is not None and keeper.pid is not None:
            processes.append(ProcessRef.of("zookeeper", keeper.pid))
        return ManagerState(
            bootstrap_servers=",".join(addresses),
            zookeeper=self.external_zookeeper or self.spec.zookeeper,
            control_addresses=control,
            processes=tuple(processes),
        )

    @property
    def brokers(self) -> tuple[BrokerInfo, ...]:
        """Every broker, in the order of ids."""
        with self._state:
            return tuple(b.info() for b in self._slots.values())

    def wait_all_ready(self, timeout_s: float) -> bool:
        """True once every broker serves; False after `timeout_s`."""
        with self._state:
            return self._state.wait_for(
                lambda: all(b.readiness is not None for b in self._slots.values()), timeout_s
            )

    def stop(self, progress: Progress = silent) -> None:
        """Drain the brokers and end every process. Safe at any time, safe to repeat."""
        interrupts.restore(self._former_handler)
        self._former_handler = None
        total = 1 + len(self._slots)
        with self._state:
            self._stopping = True
            self._state.notify_all()
            left = [b.process for b in self._slots.values() if b.process is not None]
            links = [b.link for b in self._slots.values() if b.link is not None]
        for link in links:
            link.ask_to_stop()
        if not links:
            self._cancel_jobs()
        deadline = self._clock.monotonic() + self._drain_grace_s + STOP_SLACK_S
        for done, thread in enumerate(self._threads, start=1):
            thread.join(max(0.0, deadline - self._clock.monotonic()))
            if thread.is_alive():
                self._cancel_jobs()
                thread.join(STOP_SLACK_S)
            progress(f"{thread.name} stopped", done, total)
        if self._link is not None:
            self._link.close()
        _end(left)
        if self._zookeeper is not None:
            self._zookeeper.ask_to_stop()
            self._zookeeper.finish_stop()
            self._zookeeper = None
        progress("ZooKeeper stopped", total, total)
        self._threads.clear()

    def _start_zookeeper(self) -> None:
        if self.external_zookeeper is not None:
            return
        folder = self.spec.directory / "zookeeper"
        child = zookeeper_spec(folder, self.spec.zookeeper_port, self.spec.logs / "zookeeper.log")
        marked = ChildSpec(
            name=child.name,
            command=child.command,
            log_path=child.log_path,
            environment={**child.environment, **self._mark()},
            probe=child.probe,
            drains_at_eof=child.drains_at_eof,
        )
        self._zookeeper = SupervisedChild(marked, self._clock, on_gone=lambda _c: self._changed())
        self._zookeeper.start()
        self._zookeeper.wait_ready()

    def _mark(self) -> dict[str, str]:
        return {CLUSTER_DIR_VARIABLE: str(self.spec.directory)}

    def _open_link(self) -> None:
        host = LOOPBACK if self._plan.one_host else str(self._spark.conf.get("spark.driver.host"))
        self._link = DriverLink(host, self._token, self._on_report, self._on_lost, self._silence_s)

    def _task(self, broker: BrokerSlot) -> BrokerTask:
        assert self._link is not None
        slot = broker.slot
        rows = broker_properties(self.spec, slot)
        rows["zookeeper.connect"] = self.external_zookeeper or self.spec.zookeeper
        if not self._plan.one_host:
            rows["listeners"] = f"PLAINTEXT://0.0.0.0:{slot.port}"
            rows["advertised.listeners"] = f"PLAINTEXT://{HOST_MARK}:{slot.port}"
            rows["control.listener"] = f"0.0.0.0:{slot.control_port}"
            rows["control.advertised.listener"] = f"{HOST_MARK}:{slot.control_port}"
            rows["status.listener"] = f"0.0.0.0:{slot.status_port}"
            rows["broker.rack"] = RACK_MARK
        rows.update(self.properties)
        driver = LOOPBACK if self._plan.one_host else str(self._spark.conf.get("spark.driver.host"))
        return BrokerTask(
            broker_id=slot.broker_id,
            name=slot.name,
            command=self._broker_command,
            properties=tuple(rows.items()),
            config_path=str(self.spec.directory / "conf" / f"{slot.name}.properties"),
            log_path=str(broker.log_path),
            driver_host=driver,
            driver_port=self._link.port,
            token=self._token,
            environment={**self._mark(), "GRPC_VERBOSITY": "ERROR"},
            drain_grace_s=self._drain_grace_s,
            silence_s=self._silence_s,
        )

    def _keep_job(self, broker: BrokerSlot) -> None:
        """Submit the broker's job whenever it has ended, until the manager stops."""
        failures = 0
        while not self._stopping:
            started = self._clock.monotonic()
            reason = self._run_job(broker)
            if self._clock.monotonic() - started >= STEADY_S:
                failures = 0
            delay = RESUBMIT_S[min(failures, len(RESUBMIT_S) - 1)]
            failures += 1
            if self._stopping:
                return
            if self._context_is_stopped():
                logger.warning("%s: its Spark application has ended", broker.slot.name)
                return
            logger.warning("%s: %s; submitting again in %.1f s", broker.slot.name, reason, delay)
            with self._state:
                self._state.wait_for(lambda: self._stopping, delay)

    def _run_job(self, broker: BrokerSlot) -> str:
        """Run one job from submission to its end; the reason for the end."""
        task = self._task(broker)

        def hold(_rows: Iterator[int]) -> Iterator[str]:
            yield run_broker(task)

        with self._state:
            broker.submissions += 1
        try:
            self._context.setJobGroup(broker.group, f"headwater {broker.slot.name}")
            rows = self._context.parallelize([broker.slot.broker_id], 1).mapPartitions(hold)
            if self._plan.task_cpus is not None:
                requests = TaskResourceRequests().cpus(self._plan.task_cpus)
                rows = rows.withResources(ResourceProfileBuilder().require(requests).build)
            return str(rows.collect()[0])
        except (Py4JError, PySparkException, OSError) as e:
            return f"its job ended: {str(e).strip().splitlines()[0]}"

    def _context_is_stopped(self) -> bool:
        try:
            return self._context._jsc is None or bool(self._context._jsc.sc().isStopped())
        except (Py4JError, OSError):
            return True

    def _cancel_jobs(self) -> None:
        for broker in self._slots.values():
            try:
                self._context.cancelJobGroup(broker.group)
            except (Py4JError, AttributeError, OSError) as e:
                logger.info("%s: %r", broker.group, e)  # the application has ended

    def _on_report(self, report: Report, link: TaskLink) -> None:
        broker = self._slots[int(report["broker_id"])]
        event = report["event"]
        name = broker.slot.name
        with self._state:
            if event != "up" and not broker.is_current(link):
                return  # of a task that a later one has replaced
        if event == "ready":
            self._sessions.held_by(name, report["readiness"])
        with self._state:
            if event == "up":
                broker.on_task_up(report, link)
                if self._stopping:
                    link.ask_to_stop()
            elif event == "ready":
                broker.on_ready(report["readiness"])
            elif event == "gone":
                broker.on_exit(int(report["code"]))
            self._state.notify_all()
        if event == "gone":
            self._after_exit(name, int(report["code"]))
        self._changed()

    def _after_exit(self, name: str, code: int) -> None:
        if code == 0:  # the broker has closed its session
            self._sessions.forget(name)
        else:
            self._sessions.close(name)

    def _on_lost(self, broker_id: int, link: TaskLink) -> None:
        """A task's connection has closed: Spark killed its worker, or the executor died."""
        broker = self._slots[broker_id]
        with self._state:
            orphan = broker.on_task_lost(link)
            self._state.notify_all()
        if orphan is None:
            return
        # The broker reads EOF and drains. Its session must not be closed while it still runs.
        if wait_gone([orphan], ORPHAN_WAIT_S):
            logger.warning("%s (pid %d) still runs without its task", orphan.name, orphan.pid)
        else:
            self._sessions.close(broker.slot.name)
        self._changed()

    def _wait_ready(self, progress: Progress, total: int, timeout_s: float) -> None:
        deadline = self._clock.monotonic() + timeout_s
        shown = 0
        while shown < len(self._slots):
            with self._state:
                self._state.wait_for(
                    lambda: self._ready_count() > shown or self._failure() != "",  # noqa: B023
                    max(0.0, deadline - self._clock.monotonic()),
                )
                ready, failure = self._ready_count(), self._failure()
            if failure:
                raise ChildFailedError(failure)
            if ready == shown:
                raise HeadwaterError(self._not_ready(timeout_s))
            shown = ready
            progress(f"{shown} brokers are ready", 1 + shown, total)

    def _warn_of_shared_hosts(self) -> None:
        """Warn when brokers share a host: replicas of one partition may be on one host."""
        hosts = {b.host for b in self._slots.values()}
        if not self._plan.one_host and len(hosts) < len(self._slots):
            logger.warning(
                "%d brokers run on %d hosts (%s): a topic with a higher replication factor has"
                " several replicas on one host",
                len(self._slots),
                len(hosts),
                ", ".join(sorted(hosts)),
            )

    def _ready_count(self) -> int:
        return sum(b.readiness is not None for b in self._slots.values())

    def _failure(self) -> str:
        return next((b.failure for b in self._slots.values() if b.failure), "")

    def _not_ready(self, timeout_s: float) -> str:
        waiting = [b for b in self._slots.values() if b.readiness is None]
        unplaced = [b.slot.name for b in waiting if not b.task_facts]
        if unplaced:
            return (
                f"Spark started no task for {', '.join(unplaced)} in {timeout_s:.0f} s: the"
                f" application needs {self._plan.task_cpus or 1} free cores per broker"
            )
        names = ", ".join(b.slot.name for b in waiting)
        return f"{names}: not ready after {timeout_s:.0f} s (logs: {self.spec.logs})"


def plan_for(spark: SparkSession, brokers: int) -> SlotPlan:
    """The slot plan of this session's master. Raises UsageError when the brokers do not fit."""
    conf = spark.sparkContext.getConf()
    instances = conf.get("spark.executor.instances")
    is_dynamic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
    return plan_slots(
        spark.sparkContext.master,
        brokers,
        cores_here=os.cpu_count() or 1,
        executor_cores=int(conf.get("spark.executor.cores") or 1),
        executors=int(instances) if instances and not is_dynamic else None,
    )


def network_timeout_s(spark: SparkSession) -> float:
    """After so long a silence Spark counts an executor as lost."""
    conf = spark.sparkContext._jsc.sc().conf()
    return float(conf.getTimeAsSeconds("spark.network.timeout", f"{SILENCE_S:.0f}s"))


def _end(left: list[ProcessRef]) -> None:
    """Kill the processes that did not end in time. Raises HeadwaterError if one survives that."""
    for process in wait_gone(left, STOP_SLACK_S):
        logger.warning("%s (pid %d) did not drain in time: killed", process.name, process.pid)
        process.send(signal.SIGKILL)
    alive: list[Any] = wait_gone(left, STOP_SLACK_S)
    if alive:
        raise HeadwaterError(f"these processes survived SIGKILL: {alive}")
