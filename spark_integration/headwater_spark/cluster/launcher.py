"""`headwater up --spark MASTER`: a Spark application that runs nothing but the brokers."""

from __future__ import annotations

import signal
from collections.abc import Callable

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from headwater.errors import HeadwaterError
from headwater.local.cluster_spec import ClusterSpec
from headwater.local.manager import BrokerState, ManagerState, Progress
from headwater.system import SystemClock
from headwater_spark.cluster.interrupts import Handler, restore
from headwater_spark.cluster.spark_manager import SparkManager, plan_for
from headwater_spark.spark_session import SparkStartError, cause, session

APP_NAME = "headwater cluster"
APP_CONF = {"spark.ui.enabled": "false"}


class SparkLauncher:
    """A `headwater.local.manager.Manager` that starts and stops its own Spark session."""

    def __init__(
        self,
        spec: ClusterSpec,
        master: str,
        changed: Callable[[], None],
        *,
        open_session: Callable[..., SparkSession] = session,
    ) -> None:
        self._open_session = open_session
        self._first_spec = spec
        self._master = master
        self._changed = changed
        self._spark: SparkSession | None = None
        self._manager: SparkManager | None = None

    def start(self, progress: Progress) -> None:
        """Start Spark, then the brokers. Stops everything before it raises HeadwaterError."""
        handler = signal.getsignal(signal.SIGINT)
        self._spark = self._started()
        self._own_interrupts(handler)
        try:
            plan_for(self._spark, self._first_spec.brokers)
            self._manager = SparkManager(
                self._first_spec, self._spark, SystemClock(), changed=self._changed
            )
            self._manager.start(progress)
            self._own_interrupts(handler)
        except BaseException:
            self._stop_spark()
            raise

    def _started(self) -> SparkSession:
        try:
            return self._open_session(self._master, delta=False, app_name=APP_NAME, conf=APP_CONF)
        except (PySparkException, Py4JError) as error:
            raise SparkStartError(
                f"Spark did not start on {self._master}: {cause(str(error))}"
                f" (log: {self._first_spec.directory / 'logs' / 'supervisor.log'})"
            ) from error

    def state(self) -> ManagerState:
        """The brokers' current state; before they start, the addresses of their slots."""
        if self._manager is not None:
            return self._manager.state()
        return ManagerState(
            bootstrap_servers=self._first_spec.bootstrap_servers,
            zookeeper=self._first_spec.zookeeper,
            control_addresses=tuple(s.control_address for s in self._first_spec.slots),
        )

    @property
    def spec(self) -> ClusterSpec:
        """The cluster with its present brokers."""
        return self._first_spec if self._manager is None else self._manager.spec

    def broker_states(self) -> tuple[BrokerState, ...]:
        """Every broker, in the order of ids."""
        return self._running().broker_states()

    def add_brokers(self, count: int, progress: Progress) -> None:
        """Submit the jobs of brokers with the lowest free ids. Raises HeadwaterError."""
        self._running().add_brokers(count, progress)

    def restart_broker(self, broker_id: int, progress: Progress, python: str = "") -> None:
        """Drain a broker and start it again, on the same executor. Raises HeadwaterError."""
        self._running().restart_broker(broker_id, progress, python)

    def stop_broker(self, broker_id: int, progress: Progress) -> None:
        """Drain a broker and end its job, which `start_broker` submits again."""
        self._running().stop_broker(broker_id, progress)

    def start_broker(self, broker_id: int, progress: Progress) -> None:
        """Submit the job of a stopped broker. Raises HeadwaterError."""
        self._running().start_broker(broker_id, progress)

    def remove_broker(self, broker_id: int, progress: Progress) -> None:
        """Drain a broker and take it out of the cluster. Raises HeadwaterError."""
        self._running().remove_broker(broker_id, progress)

    def log_tail(self, broker_id: int, size: int) -> str:
        """The last `size` bytes of a broker's log, from its host. Raises HeadwaterError."""
        return self._running().log_tail(broker_id, size)

    def _running(self) -> SparkManager:
        if self._manager is None:
            raise HeadwaterError("the cluster is still starting: try again when it is up")
        return self._manager

    def stop(self, progress: Progress) -> None:
        """Drain the brokers and stop Spark."""
        if self._manager is not None:
            self._manager.stop(progress)
        self._stop_spark()

    def _stop_spark(self) -> None:
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    def _own_interrupts(self, handler: Handler) -> None:
        """Give SIGINT back to the daemon after Spark or the manager has replaced its handler."""
        restore(handler)
