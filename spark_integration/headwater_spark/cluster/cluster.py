"""A Headwater cluster inside a Spark application: `Cluster.start(spark, brokers=3)`.

    with Cluster.start(spark) as cluster:
        df = spark.read.format("headwater").option(
            "kafka.bootstrap.servers", cluster.bootstrap_servers) ...

The brokers run until `stop()` or the end of the application. Data stays in the folder, and the
next `start` with the same folder uses it again.
"""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession

from headwater.errors import UsageError
from headwater.local.broker_command import BROKER_COMMAND
from headwater.local.change_requests import ChangeRequests
from headwater.local.cluster_file import ClusterRecord, DirectoryLock, resolve
from headwater.local.cluster_spec import BROKERS_DEFAULT
from headwater.local.daemon import prepare_directory
from headwater.local.data_folders import shut
from headwater.local.manager import Progress, silent
from headwater.local.service_spec import tiering_service
from headwater.local.stop import end_leftovers
from headwater.local.supervisor_socket import SupervisorSocket
from headwater.system import SystemClock, SystemEntropy
from headwater_spark.cluster.broker_job_restarts import READY_TIMEOUT_S
from headwater_spark.cluster.handle import ClusterHandle, DirectManagerClient
from headwater_spark.cluster.spark_manager import SparkManager, plan_for
from headwater_spark.connect_session import require_classic
from headwater_spark.spark_session import has_ended

DIRECTORY_DEFAULT = "headwater-data"


_running: dict[Path, Cluster] = {}
"""The clusters of this process, by folder."""


class Cluster(ClusterHandle):
    """Brokers that run as Spark jobs of this application. Make one with `Cluster.start`;
    `Cluster.attach` finds one that another process runs."""

    def __init__(
        self, spark: SparkSession, manager: SparkManager, lock: DirectoryLock, record: ClusterRecord
    ) -> None:
        requests = ChangeRequests(manager)
        super().__init__(DirectManagerClient(requests))
        self._spark = spark
        self._manager = manager
        if manager.security is not None:
            self._login = manager.security.client_properties
        self._commands = SupervisorSocket(record.directory, requests)
        self._lock = lock
        self._record = record
        self._stopped = False
        self._pid = os.getpid()

    @classmethod
    def start(
        cls,
        spark: SparkSession,
        brokers: int | None = None,
        dir: str | os.PathLike[str] = DIRECTORY_DEFAULT,
        port: int | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        zookeeper: str | None = None,
        secure: bool = False,
        tiering: bool = True,
        timeout_s: float = READY_TIMEOUT_S,
        progress: Progress = silent,
        broker_command: tuple[str, ...] = BROKER_COMMAND,
    ) -> Cluster:
        """Start brokers and return when all of them serve; default: 3, on ports from 9092.

        `properties` are broker configs, the same for all. `zookeeper` names an external ensemble,
        which a cluster of several machines needs; otherwise an embedded one runs beside the driver.

        `secure`: TLS on every connection, users, ACLs; a cluster that was secure once stays so. A
        notebook connects with `.options(**cluster.spark_options())`, other clients with the file
        `cluster.client_properties`.

        `tiering`: beside the driver a process of low priority, which takes no core, tiers topics
        with remote.storage.enable=true into their Delta tables (`headwater tier serve`).

        If this application already runs a cluster in `dir`, that one is returned: a notebook's
        cell can run again. The cluster stops at `stop()`, before Spark stops, and when the program
        ends. Brokers that an earlier driver left in `dir` drain first, and are killed if they do
        not; a driver that still manages this cluster, on any host, is an error.

        Raises UsageError at once when the master has too few slots, naming one that fits.
        """
        require_classic(spark)
        plan_for(spark, brokers or BROKERS_DEFAULT)
        directory = prepare_directory(os.fspath(dir))
        known = _running.get(directory)
        if known is not None and known._runs_in(spark):
            known._check_same(brokers, port, properties, zookeeper, secure or None)
            return known
        if known is not None:
            known.stop()  # its application has ended
        lock = DirectoryLock(directory)
        lock.acquire()
        record: ClusterRecord | None = None
        try:
            end_leftovers(directory)
            spec = resolve(directory, brokers, port, SystemEntropy(), secure=secure)
            service = tiering_service() if tiering else None
            spec = replace(spec, services=() if service is None else (service,))
            if spec.secure:
                shut(spec)
            record = ClusterRecord(spec, "spark", "spark driver")
            manager = SparkManager(
                spec,
                spark,
                SystemClock(),
                properties=properties,
                zookeeper=zookeeper,
                changed=record.update,
                broker_command=broker_command,
            )
            record.manager = manager
            manager.start(progress, timeout_s)
            record.update()
        except BaseException:
            if record is not None:
                record.close()
            lock.release()
            raise
        cluster = cls(spark, manager, lock, record)
        cluster._commands.open_if_possible()
        _running[directory] = cluster
        # Before Spark stops: it would print an error for each broker's task that it kills.
        atexit.register(cluster._stop_at_exit)
        _stop_clusters_first(spark.sparkContext)
        return cluster

    def _runs_in(self, spark: SparkSession) -> bool:
        return self._spark.sparkContext is spark.sparkContext and not has_ended(spark)

    def _check_same(
        self,
        brokers: int | None,
        port: int | None,
        properties: Mapping[str, str] | None,
        zookeeper: str | None,
        secure: bool | None,
    ) -> None:
        """Raises UsageError when the arguments describe another cluster in this one's folder."""
        spec = self._manager.spec
        differs = [
            name
            for name, wanted, found in (
                ("brokers", brokers, spec.brokers),
                ("port", port, spec.base_port),
                ("properties", properties, self._manager.properties),
                ("zookeeper", zookeeper, self._manager.external_zookeeper),
                ("security", secure, spec.secure),
            )
            if wanted is not None and wanted != found
        ]
        if differs:
            raise UsageError(
                f"a cluster with other {' and '.join(differs)} runs in {spec.directory} already"
                f" ({spec.brokers} brokers, {self.bootstrap_servers}): scale() it, stop() it first,"
                " or choose another dir and port"
            )

    @property
    def bootstrap_servers(self) -> str:
        """The clients' `bootstrap.servers`. Ports are fixed per broker: constant on one machine."""
        return self._manager.state().bootstrap_servers

    def status(self) -> dict[str, Any]:
        """The cluster's state as plain values: cluster id, addresses, a row for each broker."""
        return {**super().status(), "stopped": self._stopped}

    def wait_ready(self, timeout_s: float = READY_TIMEOUT_S) -> bool:
        """True once every broker serves; False after `timeout_s`."""
        return self._manager.wait_all_ready(timeout_s)

    def stop(self, progress: Progress = silent) -> None:
        """Drain the brokers and end every process of the cluster. Data stays. Safe to repeat."""
        if self._stopped:
            return
        self._stopped = True
        atexit.unregister(self._stop_at_exit)
        _running.pop(self._manager.spec.directory, None)
        self._commands.close()
        try:
            self._manager.stop(progress)
        finally:
            self._record.close()
            self._lock.release()

    def _stop_at_exit(self) -> None:
        if os.getpid() == self._pid:  # not in a forked child
            self.stop()

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _stop_clusters_first(context: Any) -> None:
    """Make `context.stop()` stop the context's clusters first, while their tasks still run."""
    if "stop" in vars(context):
        return
    stop_context = context.stop

    def stop() -> None:
        try:
            for cluster in [c for c in _running.values() if c._spark.sparkContext is context]:
                cluster.stop()
        finally:
            stop_context()

    context.stop = stop
