"""`ClusterHandle`: what an operator does with a running cluster, from any Python process.

    from headwater_spark import Cluster
    cluster = Cluster.attach(zookeeper="zk1:2181/headwater")
    cluster.scale(5)

`Cluster.start` returns a handle too, of a cluster that ends with its application. No pyspark.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

from headwater.client.admin.client import Admin
from headwater.client.security_options import security_keywords
from headwater.config.java_properties import read_java_properties
from headwater.errors import UsageError
from headwater.local.change_requests import ChangeRequests
from headwater.local.daemon import cluster_folder
from headwater.local.manager import BrokerState, Progress, silent
from headwater.local.secure_cluster import client_properties_of
from headwater.local.supervisor_socket import Event, SocketManagerClient
from headwater.local.zk_properties import zookeeper_security
from headwater.local.zk_requests import ZkManagerClient
from headwater.operations.broker_operations import BrokerOperations, ManagerClient
from headwater.operations.pacing import Pacing
from headwater_spark.task_security import CLIENT_FILE

LOG_BYTES_DEFAULT = 16 * 1024
TIMEOUT_DEFAULT_S = 600.0


class DirectManagerClient:
    """Requests to a manager of this process."""

    def __init__(self, requests: ChangeRequests) -> None:
        self._requests = requests

    def ask(self, command: str, **arguments: Any) -> Iterator[Event]:
        """Carry out a request; its events up to and including `done`. Raises HeadwaterError."""
        events: list[Event] = []
        done = self._requests({"command": command, **arguments}, events.append)
        yield from [*events, done]


class ClusterHandle:
    """A running cluster. Every method raises HeadwaterError when it cannot be completed; called
    again after that, or after the caller was killed, it continues."""

    def __init__(self, manager: ManagerClient) -> None:
        self._client = manager
        self._login: Path | None = None

    @classmethod
    def attach(
        cls,
        *,
        dir: str | os.PathLike[str] | None = None,
        zookeeper: str | None = None,
        client_properties: str | os.PathLike[str] | None = None,
        zookeeper_properties: str | os.PathLike[str] | None = None,
    ) -> ClusterHandle:
        """The running cluster of a folder on this host, or of a ZooKeeper.

        `zookeeper` finds a cluster that a Spark driver manages, from any host that reaches its
        ZooKeeper and its brokers. For a secure one give two files of its folder D on the driver's
        host: `client_properties`, D/security/client.properties, is the login at the brokers, and
        `zookeeper_properties`, D/security/secrets.properties, that at ZooKeeper. Where ZooKeeper is
        reached by TLS that file has the brokers' `zookeeper.ssl.*` keys too.
        """
        if (dir is None) == (zookeeper is None):
            raise UsageError("which cluster? Give dir= or zookeeper=")
        login = None if client_properties is None else Path(client_properties)
        if zookeeper is not None:
            shown = zookeeper_security(zookeeper_properties, "zookeeper_properties")
            client: ManagerClient = ZkManagerClient(zookeeper, security=shown)
        else:
            folder = cluster_folder(os.fspath(dir or ""))
            login = login or client_properties_of(folder)
            client = SocketManagerClient(folder)
        handle = ClusterHandle(client)
        handle._login = login
        handle.status()
        return handle

    @property
    def client_properties(self) -> Path | None:
        """The login of a secure cluster, as a file of Kafka's clients and tools; None if there is
        none."""
        return self._login

    @property
    def bootstrap_servers(self) -> str:
        """The clients' `bootstrap.servers`. Ports are fixed per broker: constant on one machine."""
        return str(self.status()["bootstrap_servers"])

    def spark_options(self) -> dict[str, str]:
        """Options with which a reader or writer of Spark reaches this cluster:
        `spark.read.format("headwater").options(**cluster.spark_options())`. There is no secret
        among them: they name the client's file, and tasks get a delegation token."""
        login = self.client_properties
        file = {} if login is None else {CLIENT_FILE: str(login.absolute())}
        return {"kafka.bootstrap.servers": self.bootstrap_servers, **file}

    @property
    def brokers(self) -> tuple[BrokerState, ...]:
        """Every broker with its process, executor and number of restarts."""
        return tuple(BrokerState(**row) for row in self.status()["brokers"])

    @property
    def restarts(self) -> int:
        """The restarts of all brokers, summed up."""
        return sum(broker.restarts for broker in self.brokers)

    def status(self) -> dict[str, Any]:
        """The cluster's state as plain values: cluster id, addresses, a row for each broker."""
        return self._operations().status()

    def logs(self, broker_id: int, size: int = LOG_BYTES_DEFAULT) -> str:
        """The last `size` bytes of a broker's log, from whichever host it is on."""
        return self._operations().log_tail(broker_id, size)

    def scale(
        self,
        brokers: int,
        *,
        rebalance: bool = True,
        timeout_s: float = TIMEOUT_DEFAULT_S,
        progress: Progress = silent,
    ) -> None:
        """Add brokers, or remove those with the highest ids, until there are `brokers`.

        Replicas move to added brokers with `rebalance`. Removed ones are drained first; too few
        brokers for a topic's replication factor are refused before anything moves. `timeout_s`:
        how long moves of replicas may take without any of them being done.
        """
        self._operations(timeout_s, progress).scale(brokers, rebalance=rebalance)

    def rebalance(
        self, *, timeout_s: float = TIMEOUT_DEFAULT_S, progress: Progress = silent
    ) -> int:
        """Move replicas until no broker has two more than another; the number of partitions."""
        return self._operations(timeout_s, progress).rebalance()

    def drain(
        self,
        broker_ids: Iterable[int],
        *,
        timeout_s: float = TIMEOUT_DEFAULT_S,
        progress: Progress = silent,
    ) -> int:
        """Move every replica off these brokers, which go on running; the number of partitions."""
        return self._operations(timeout_s, progress).drain(tuple(broker_ids))

    def remove(
        self,
        broker_ids: Iterable[int],
        *,
        timeout_s: float = TIMEOUT_DEFAULT_S,
        progress: Progress = silent,
    ) -> None:
        """Drain these brokers, stop them and take them out of the cluster."""
        self._operations(timeout_s, progress).remove(tuple(broker_ids))

    def restart(
        self,
        broker_id: int | None = None,
        *,
        rolling: bool = False,
        python: str = "",
        timeout_s: float = TIMEOUT_DEFAULT_S,
        progress: Progress = silent,
    ) -> list[int]:
        """Restart one broker, or with `rolling` all of them one after the other; their ids.

        It waits until each is in sync again, at most `timeout_s`. With `python`, this interpreter
        runs them from now on: an upgrade, which leaves those alone that it runs already.
        """
        if (broker_id is None) != rolling:
            raise UsageError("which brokers? Give a broker's id, or rolling=True for all")
        operations = self._operations(timeout_s, progress)
        if broker_id is None:
            return operations.rolling_restart(python)
        operations.restart(broker_id, python)
        return [broker_id]

    def _operations(
        self, timeout_s: float = TIMEOUT_DEFAULT_S, progress: Progress = silent
    ) -> BrokerOperations:
        pacing = Pacing(in_sync_s=timeout_s, stall_s=timeout_s)
        admin = partial(_open_admin, self.client_properties)
        return BrokerOperations(self._client, admin, progress=progress, pacing=pacing)


def _open_admin(login: Path | None, bootstrap_servers: str) -> AbstractContextManager[Any]:
    rows = {} if login is None else read_java_properties(str(login), str(login))
    return Admin(bootstrap_servers, **security_keywords(rows))
