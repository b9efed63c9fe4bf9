"""Submits a broker's Spark job again when it is lost: first on its own host, then anywhere.

A thread per broker submits a job of one task and waits for its end. When the task or its executor
dies, the thread submits the job again, with back-off. When a broker process has ended, its
ZooKeeper session is closed at once, so that its partitions get new leaders now and not after the
session timeout. The thread never gives up; a task ends after `broker_task.FAILED_STARTS_MAX` starts
of the broker process that failed.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headwater.clock import Clock
from headwater.errors import HeadwaterError, UsageError
from headwater.local.broker_homes import BrokerHomes
from headwater.local.broker_sessions import BrokerSessions
from headwater.local.child import ChildFailedError
from headwater.local.manager import Progress
from headwater.local.processes import ProcessRef, wait_gone
from headwater_spark.cluster.broker_slot import BrokerSlot
from headwater_spark.cluster.broker_task import REFUSED, BrokerTask
from headwater_spark.cluster.driver_link import Report, TaskLink
from headwater_spark.cluster.spark_jobs import SparkJobs

logger = logging.getLogger(__name__)

RESUBMIT_S = (0.0, 0.5, 1.0, 2.0, 5.0, 10.0)
STEADY_S = 30.0
"""A job that lasted this long resets the back-off."""
READY_TIMEOUT_S = 120.0
ORPHAN_WAIT_S = 30.0
"""How long the manager waits for a broker without a task to drain."""
STOP_SLACK_S = 5.0
HOME_WAIT_S = 20.0
"""How long a job waits for an executor on the host that has its broker's data."""
HOME_POLL_S = 0.5


@dataclass(slots=True)
class BrokerJobs:
    """The jobs of all brokers. Any thread may call."""

    clock: Clock
    spark_jobs: SparkJobs
    sessions: BrokerSessions
    make_task: Callable[[BrokerSlot], BrokerTask]
    welcome: Callable[[BrokerSlot, Report], Report]
    """What a broker needs to run, for the task that has sent this first report. Raises
    UsageError."""
    changed: Callable[[], None]
    drain_grace_s: float
    task_cpus: int
    """Free cores that a broker's task needs, for messages."""
    homes: BrokerHomes | None = None
    """Where brokers have their data; None while all run on one host."""
    state: threading.Condition = field(default_factory=threading.Condition)
    """The lock of all slots; notified when one changes."""
    _slots: dict[int, BrokerSlot] = field(default_factory=dict)
    _stopping: bool = False

    def brokers(self) -> list[BrokerSlot]:
        """Every broker, in the order of ids."""
        with self.state:
            return [broker for _, broker in sorted(self._slots.items())]

    def broker(self, broker_id: int) -> BrokerSlot:
        """One broker. Raises UsageError."""
        broker = self._slots.get(broker_id)
        if broker is None:
            ids = ", ".join(str(b.slot.broker_id) for b in self.brokers())
            raise UsageError(f"no broker {broker_id}: ids are {ids}")
        return broker

    def start(self, broker: BrokerSlot) -> None:
        """Submit a broker's job, now and whenever it has ended."""
        if self.homes is not None:
            broker.home = self.homes.of(broker.slot.broker_id)
        with self.state:
            self._slots[broker.slot.broker_id] = broker
        broker.thread = threading.Thread(
            target=self._keep_job, args=(broker,), name=broker.group, daemon=True
        )
        broker.thread.start()

    def end_run(self, broker: BrokerSlot) -> None:
        """Drain a broker that is held or removed; return when its task and process have ended."""
        with self.state:
            self.state.notify_all()
            link, process = broker.link, broker.process
        if link is not None:
            link.ask_to_stop()
        else:
            self.spark_jobs.cancel(broker.group)
        with self.state:
            limit = self.drain_grace_s + STOP_SLACK_S
            if not self.state.wait_for(lambda: broker.link is None, limit):
                self.spark_jobs.cancel(broker.group)
        if process is not None:
            _end([process])

    def remove(self, broker: BrokerSlot) -> None:
        """Drain a broker and submit no job for it any more."""
        with self.state:
            broker.is_removed = True
        self.end_run(broker)
        self._join(broker, STOP_SLACK_S)
        with self.state:
            self._slots.pop(broker.slot.broker_id, None)
        if self.homes is not None:
            self.homes.remove(broker.slot.broker_id)

    def stop(self, progress: Progress, total: int) -> None:
        """Drain all brokers and end their jobs. Raises HeadwaterError when a process survives."""
        brokers = self.brokers()
        with self.state:
            self._stopping = True
            self.state.notify_all()
            left = [b.process for b in brokers if b.process is not None]
            links = [b.link for b in brokers if b.link is not None]
        for link in links:
            link.ask_to_stop()
        if not links:
            for broker in brokers:
                self.spark_jobs.cancel(broker.group)
        deadline = self.clock.monotonic() + self.drain_grace_s + STOP_SLACK_S
        for done, broker in enumerate(brokers, start=1):
            self._join(broker, max(0.0, deadline - self.clock.monotonic()))
            progress(f"{broker.slot.name} stopped", done, total)
        _end(left)

    def _join(self, broker: BrokerSlot, timeout_s: float) -> None:
        thread = broker.thread
        if thread is None:
            return
        thread.join(timeout_s)
        if thread.is_alive():
            self.spark_jobs.cancel(broker.group)
            thread.join(STOP_SLACK_S)

    def _is_over(self, broker: BrokerSlot) -> bool:
        return self._stopping or broker.is_removed

    def _keep_job(self, broker: BrokerSlot) -> None:
        """Submit the broker's job whenever it has ended, until the broker or all brokers go."""
        failures = 0
        reason = ""
        while not self._is_over(broker):
            started = self.clock.monotonic()
            with self.state:
                broker.submissions += 1
            if reason != REFUSED:  # Spark itself ran the task again: its host has been given up
                self._await_home(broker)
            if self._is_over(broker):
                return
            reason = self.spark_jobs.run(broker.group, self.make_task(broker), broker.home)
            if self.clock.monotonic() - started >= STEADY_S or broker.is_held:
                failures = 0
            delay = RESUBMIT_S[min(failures, len(RESUBMIT_S) - 1)]
            failures += 1
            if self._is_over(broker):
                return
            if self.spark_jobs.application_has_ended():
                logger.warning("%s: its Spark application has ended", broker.slot.name)
                return
            if not broker.is_held:
                name = broker.slot.name
                logger.warning("%s: %s; submitting again in %.1f s", name, reason, delay)
            with self.state:
                self.state.wait_for(lambda: self._is_over(broker), delay)
                self.state.wait_for(lambda: self._is_over(broker) or not broker.is_held)

    def _await_home(self, broker: BrokerSlot) -> None:
        """Wait a little for an executor on the broker's host: elsewhere it would have no data.

        Spark runs a task anywhere at once while the preferred host has no executor.
        """
        deadline = self.clock.monotonic() + HOME_WAIT_S
        while broker.home and broker.home not in self.spark_jobs.executor_hosts():
            with self.state:
                over = self.state.wait_for(lambda: self._is_over(broker), HOME_POLL_S)
            if over or self.clock.monotonic() >= deadline:
                return

    def on_report(self, report: Report, link: TaskLink) -> None:
        """A report of a broker's task."""
        broker = self._slots.get(int(report["broker_id"]))
        if broker is None:
            link.ask_to_stop()  # it has been removed
            return
        event = report["event"]
        name = broker.slot.name
        with self.state:
            if event != "up" and not broker.is_current(link):
                return  # of a task that a later one has replaced
        if event == "ready":
            self.sessions.held_by(name, report["readiness"])
            self._settle(broker)
        with self.state:
            if event == "up":
                broker.on_task_up(report, link)
                self._answer(broker, report, link)
            elif event == "ready":
                broker.on_ready(report["readiness"])
            elif event == "gone":
                broker.on_exit(int(report["code"]))
            self.state.notify_all()
        if event == "gone":
            self._after_exit(name, int(report["code"]))
        self.changed()

    def _answer(self, broker: BrokerSlot, report: Report, link: TaskLink) -> None:
        """Let a task run its broker, unless the broker is not to run."""
        if self._is_over(broker) or broker.is_held:
            link.ask_to_stop()
            return
        try:
            link.welcome(**self.welcome(broker, report))
        except UsageError as error:
            broker.failure = f"{broker.slot.name}: {error}"
            link.ask_to_stop()

    def _settle(self, broker: BrokerSlot) -> None:
        """The broker serves: its data is on this executor's host."""
        host = str(broker.task_facts.get("executor_host") or "")
        if self.homes is not None and host and host != broker.home:
            with self.state:
                broker.home = host
            self.homes.put(broker.slot.broker_id, host)

    def _after_exit(self, name: str, code: int) -> None:
        if code == 0:  # the broker has closed its session
            self.sessions.forget(name)
        else:
            self.sessions.close(name)

    def on_lost(self, broker_id: int, link: TaskLink) -> None:
        """A task's connection has closed: Spark killed its worker, or the executor died."""
        broker = self._slots.get(broker_id)
        if broker is None:
            return  # it has been removed
        with self.state:
            orphan = broker.on_task_lost(link)
            self.state.notify_all()
        if orphan is None:
            return
        # The broker reads EOF and drains. Its session must not be closed while it still runs.
        if wait_gone([orphan], ORPHAN_WAIT_S):
            logger.warning("%s (pid %d) still runs without its task", orphan.name, orphan.pid)
        else:
            self.sessions.close(broker.slot.name)
        self.changed()

    def wait_all_ready(self, timeout_s: float) -> bool:
        """True once every broker serves; False after `timeout_s`."""
        with self.state:
            return self.state.wait_for(
                lambda: all(b.readiness is not None for b in self._slots.values()), timeout_s
            )

    def wait_started(self, progress: Progress, total: int, timeout_s: float) -> None:
        """Wait until every broker has become ready. Raises HeadwaterError."""
        deadline = self.clock.monotonic() + timeout_s
        shown = 0
        while shown < len(self._slots):
            with self.state:
                self.state.wait_for(
                    lambda: self._ready_count() > shown or self._failure() != "",  # noqa: B023
                    max(0.0, deadline - self.clock.monotonic()),
                )
                ready, failure = self._ready_count(), self._failure()
            if failure:
                raise ChildFailedError(failure)
            if ready == shown:
                raise HeadwaterError(self._not_ready(timeout_s))
            shown = ready
            progress(f"{shown} brokers are ready", 1 + shown, total)

    def wait_ready_again(self, broker: BrokerSlot, times_ready: int) -> None:
        """Wait until a broker is ready once more than `times_ready`. Raises HeadwaterError."""
        with self.state:
            self.state.wait_for(
                lambda: broker.times_ready > times_ready or broker.failure or self._stopping,
                READY_TIMEOUT_S,
            )
            if broker.times_ready > times_ready and broker.readiness is not None:
                return
        if self._stopping:
            raise HeadwaterError(f"{broker.slot.name} is not started: the cluster is stopping")
        if broker.failure:
            raise ChildFailedError(broker.failure)
        if not broker.task_facts:
            raise HeadwaterError(self._unplaced([broker], READY_TIMEOUT_S))
        raise HeadwaterError(
            f"{broker.slot.name} is not ready after {READY_TIMEOUT_S:.0f} s (log:"
            f" {broker.log_path} on {broker.task_facts.get('host')})"
        )

    def _ready_count(self) -> int:
        return sum(b.readiness is not None for b in self._slots.values())

    def _failure(self) -> str:
        return next((b.failure for b in self._slots.values() if b.failure), "")

    def _not_ready(self, timeout_s: float) -> str:
        waiting = [b for b in self._slots.values() if b.readiness is None]
        unplaced = [b for b in waiting if not b.task_facts]
        if unplaced:
            return self._unplaced(unplaced, timeout_s)
        names = ", ".join(b.slot.name for b in waiting)
        return f"{names}: not ready after {timeout_s:.0f} s (logs: {waiting[0].log_path.parent})"

    def _unplaced(self, brokers: list[BrokerSlot], timeout_s: float) -> str:
        names = ", ".join(b.slot.name for b in brokers)
        return (
            f"Spark started no task for {names} in {timeout_s:.0f} s: the application needs"
            f" {self.task_cpus} free cores per broker, on an executor of its own"
        )


def _end(left: list[ProcessRef]) -> None:
    """Kill the processes that did not end in time. Raises HeadwaterError if one survives that."""
    for process in wait_gone(left, STOP_SLACK_S):
        logger.warning("%s (pid %d) did not drain in time: killed", process.name, process.pid)
        process.send(signal.SIGKILL)
    alive: list[Any] = wait_gone(left, STOP_SLACK_S)
    if alive:
        raise HeadwaterError(f"these processes survived SIGKILL: {alive}")
