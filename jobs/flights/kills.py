"""The demo's kills: SIGKILL of a broker or of its executor, never of the same broker twice."""

from __future__ import annotations

import os
import signal

from flights.connection import Connection
from flights.records import FLIGHTS
from headwater import Admin
from headwater.errors import HeadwaterError
from headwater_spark.cluster.cluster import Cluster


class BrokerKills:
    """Kills brokers that lead partitions of the flights topic."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._killed: set[int] = set()

    def kill_broker(self) -> str:
        """SIGKILL the process of a leader; the victim's name and pid."""
        broker_id = self._choose()
        broker = next(b for b in self._cluster.brokers if b.broker_id == broker_id)
        return self._kill(broker.pid, f"broker {broker_id}")

    def kill_executor(self) -> str:
        """SIGKILL the executor of a leader: the broker's task dies with it."""
        broker_id = self._choose()
        broker = next(b for b in self._cluster.brokers if b.broker_id == broker_id)
        name = f"executor {broker.executor_id} (with broker {broker_id})"
        return self._kill(broker.executor_pid, name)

    def _choose(self) -> int:
        connection = Connection.of(self._cluster)
        with Admin(connection.servers, **connection.sdk) as admin:
            partitions = admin.describe_topics([FLIGHTS])[FLIGHTS].partitions
        leaders = [p.leader for p in partitions if p.leader >= 0 and p.leader not in self._killed]
        if not leaders:
            raise HeadwaterError(f"no broker but {sorted(self._killed)} leads {FLIGHTS}")
        chosen = max(set(leaders), key=leaders.count)
        self._killed.add(chosen)
        return chosen

    def _kill(self, pid: int | None, name: str) -> str:
        if pid is None:
            raise HeadwaterError(f"{name} has no process to kill")
        os.kill(pid, signal.SIGKILL)
        return f"{name}, pid {pid}"
