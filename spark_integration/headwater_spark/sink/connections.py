"""A process's clients of a cluster, kept from one task to the next. Imports no pyspark.

Spark reuses Python workers. New connections and new metadata would cost a small micro-batch more
time than its rows. Clients that saw a failure are closed, not kept: they may hold requests without
a reply.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from headwater.client.blocking.epoch_client import EpochClient
from headwater.client.blocking.record_client import RecordClient
from headwater_spark.options import Timeouts
from headwater_spark.sink.heartbeats import FIRST_INTERVAL_S
from headwater_spark.sink.sink_options import SinkOptions
from headwater_spark.task_security import TaskSecurity

SENDERS = 3
"""Threads with connections of their own. A partition has one sender, which keeps its order."""
CLIENT_ID = "headwater-spark-write"
ABORT_TIMEOUT_S = 5.0
"""An abort is best effort and must not hold up the end of a query."""

_Key = tuple[int, str, str, Timeouts, TaskSecurity, int]


@dataclass(slots=True)
class Sender:
    """A thread, its connections, and its unfinished requests."""

    pool: ThreadPoolExecutor
    client: RecordClient
    under_way: list[Future[int]] = field(default_factory=list)


class SinkConnections:
    """The clients of one set of options. One task at a time."""

    def __init__(
        self,
        options: SinkOptions,
        *,
        new_record_client: Callable[..., RecordClient] = RecordClient,
        new_epoch_client: Callable[..., EpochClient] = EpochClient,
    ) -> None:
        """The two factories are for tests."""
        self._options = options
        self.heartbeat_interval_s = FIRST_INTERVAL_S
        """The brokers' interval as the last join told it: tasks begin with it, so that only the
        first one of a process asks more often than is needed."""
        self._new_record_client = new_record_client
        self._new_epoch_client = new_epoch_client
        self._client_id = options.client_id or CLIENT_ID
        self._senders: list[Sender] = []
        self._meta: RecordClient | None = None
        self._epochs: EpochClient | None = None

    @property
    def meta(self) -> RecordClient:
        """For metadata and producer ids."""
        if self._meta is None:
            self._meta = self._record_client(self._options.timeouts.retry_s)
        return self._meta

    @property
    def epochs(self) -> EpochClient:
        """For the calls of epoch transactions."""
        if self._epochs is None:
            self._epochs = self.new_epoch_client()
        return self._epochs

    def new_epoch_client(self, retry_timeout_s: float | None = None) -> EpochClient:
        """A client of the caller's, for another thread or time limit; the caller closes it."""
        timeouts = self._options.timeouts
        limit_s = retry_timeout_s or timeouts.retry_s
        return self._new_epoch_client(
            self._options.bootstrap_servers,
            client_id=self._client_id,
            request_timeout_s=min(timeouts.request_s, limit_s),
            retry_timeout_s=limit_s,
            credentials=self._options.security.credentials(),
        )

    def sender(self, partition: int) -> Sender:
        """The sender of a partition."""
        number = partition % SENDERS
        while len(self._senders) <= number:
            client = self._record_client(self._options.delivery_timeout_ms / 1000)
            self._senders.append(Sender(ThreadPoolExecutor(1, "headwater-send"), client))
        return self._senders[number]

    def _record_client(self, retry_timeout_s: float) -> RecordClient:
        return self._new_record_client(
            self._options.bootstrap_servers,
            client_id=self._client_id,
            request_timeout_s=self._options.timeouts.request_s,
            retry_timeout_s=retry_timeout_s,
            credentials=self._options.security.credentials(),
        )

    def wait_until_sent(self) -> None:
        """Return when every queued batch is acknowledged; raises the first error otherwise."""
        for sender in self._senders:
            while sender.under_way:
                sender.under_way.pop(0).result()

    def close(self) -> None:
        """Cancel queued requests and close every connection."""
        for sender in self._senders:
            sender.pool.shutdown(wait=True, cancel_futures=True)
            sender.client.close()
        self._senders.clear()
        for client in (self._meta, self._epochs):
            if client is not None:
                client.close()
        self._meta = self._epochs = None


_idle: dict[_Key, SinkConnections] = {}


@contextmanager
def sink_connections(options: SinkOptions) -> Iterator[SinkConnections]:
    """The connections of these options for one task: idle ones of this process, or new ones."""
    connections = _idle.pop(_key(options), None) or SinkConnections(options)
    try:
        yield connections
    except BaseException:
        connections.close()
        raise
    keep_idle(options, connections)


def keep_idle(options: SinkOptions, connections: SinkConnections) -> None:
    """Keep connections for the next task with these options; at most one such set is kept."""
    displaced = _idle.get(_key(options))
    _idle[_key(options)] = connections
    if displaced is not None:
        displaced.close()


def close_idle() -> None:
    """Close the connections that no task uses."""
    while _idle:
        _idle.popitem()[1].close()


def _key(options: SinkOptions) -> _Key:
    """A forked process opens connections of its own."""
    return (
        os.getpid(),
        options.bootstrap_servers,
        options.client_id or CLIENT_ID,
        options.timeouts,
        options.security,
        options.delivery_timeout_ms,
    )
