"""Blocking connections to a cluster's brokers, and calls that outlive a broker's death.

Every call is tried again, with metadata asked anew of all known brokers and the bootstrap list,
until it succeeds, fails for good, or its time is up. That covers lost connections and every error
that Kafka calls retriable: an election, a leader that does not know its high watermark yet
(KIP-207), replicas that are missing for the moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from headwater.client.addresses import parse_bootstrap
from headwater.client.blocking.connection import BlockingConnection
from headwater.client.core.metadata import MetadataCache, Topic, metadata_request
from headwater.client.errors import (
    KafkaTimeoutError,
    NoBrokersAvailableError,
    UnknownTopicOrPartitionError,
    kafka_error,
)
from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.credentials import NO_CREDENTIALS, Credentials
from headwater.wire.apis.k03_metadata import MetadataResponse
from headwater.wire.schema import SchemaError

BACKOFF_FIRST_S = 0.02
BACKOFF_MAX_S = 0.5
METADATA_TIMEOUT_S = 5.0
"""A broker that hangs must not keep the others from being asked."""
UNKNOWN_TOPIC_S = 1.0
"""For so long a topic may be unknown to brokers that have not heard of it yet."""
VANISHED_TOPIC_S = 10.0
"""The same for a topic that was there before: a broker that starts learns topics by and by."""

Address = tuple[str, int]
T = TypeVar("T")


class MissingTopicError(UnknownTopicOrPartitionError):
    """No broker knows the topic or partition, after enough time to have heard of it."""


class RetryTimer:
    """For how long something is tried again, and the pauses in between."""

    def __init__(self, clock: Clock, timeout_s: float, what: str) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._what = what
        self.restart()

    def restart(self) -> None:
        """Something succeeded: all the time there was is there again."""
        self._started = self._clock.monotonic()
        self._pause_s = BACKOFF_FIRST_S

    @property
    def waited_s(self) -> float:
        """Seconds without success."""
        return self._clock.monotonic() - self._started

    def check(self, error: Exception) -> None:
        """Raise `error` when it is final, KafkaTimeoutError when time is up."""
        if not is_retriable(error):
            raise error
        if self.waited_s >= self._timeout_s:
            raise KafkaTimeoutError(
                f"{self._what} did not succeed within {self._timeout_s:g} s: {error}"
            ) from error

    def pause_after(self, error: Exception) -> None:
        """`check`, then sleep a little, longer each time."""
        self.check(error)
        time.sleep(self._pause_s)
        self._pause_s = min(BACKOFF_MAX_S, self._pause_s * 2)


def is_retriable(error: Exception) -> bool:
    """A lost connection, or an error that a new leader or a little time cures."""
    if isinstance(error, MissingTopicError | KafkaTimeoutError):
        return False
    if isinstance(error, KafkaError):
        return error.retriable
    return isinstance(error, OSError)


class BlockingCluster:
    """A pool of blocking connections, what is known of the cluster, and calls that are repeated."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        clock: Clock,
        *,
        client_id: str,
        request_timeout_s: float,
        retry_timeout_s: float,
        credentials: Credentials = NO_CREDENTIALS,
    ) -> None:
        self._bootstrap = parse_bootstrap(bootstrap_servers)
        self._clock = clock
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._retry_timeout_s = retry_timeout_s
        self._credentials = credentials
        self._pool: dict[Address, BlockingConnection] = {}
        self._ever_seen: set[str] = set()
        self._ask_first: Address | None = None
        self.cache = MetadataCache()

    def close(self) -> None:
        """Close every connection."""
        for connection in self._pool.values():
            connection.close()
        self._pool.clear()

    def patience(self, what: str, timeout_s: float | None = None) -> RetryTimer:
        """The time that a call has."""
        return RetryTimer(self._clock, timeout_s or self._retry_timeout_s, what)

    def metadata(self, topics: Iterable[str] | None) -> dict[str, Topic]:
        """Ask the cluster anew; these topics (None: all), by name. Raises MissingTopicError."""
        names = None if topics is None else list(topics)
        patience = self.patience("metadata")
        while True:
            try:
                self._refresh(names)
                missing = [name for name in names or () if name not in self.cache.topics]
                if not missing:
                    break
                raise self._missing(missing[0], patience)
            except (OSError, KafkaError) as e:
                patience.pause_after(e)
        self._ever_seen.update(self.cache.topics)
        wanted = self.cache.topics if names is None else names
        return {name: self.cache.topics[name] for name in wanted}

    def with_any(
        self, what: str, ask: Callable[[BlockingConnection], T], timeout_s: float | None = None
    ) -> T:
        """`ask` any broker; another one when it fails."""
        patience = self.patience(what, timeout_s)
        while True:
            try:
                return self._ask_any(ask)
            except (OSError, KafkaError) as e:
                patience.pause_after(e)

    def with_broker(
        self,
        what: str,
        broker_id: int,
        ask: Callable[[BlockingConnection], T],
        timeout_s: float | None = None,
    ) -> T:
        """`ask` this broker, wherever it is now."""
        patience = self.patience(what, timeout_s)
        return self._repeat(patience, [], lambda: self.connection(broker_id), ask)

    def with_leader(
        self, what: str, topic: str, partition: int, ask: Callable[[BlockingConnection], T]
    ) -> T:
        """`ask` the partition's leader, whoever that is now."""
        patience = self.patience(f"{what} {topic}-{partition}")
        return self._repeat(
            patience, [topic], lambda: self.connection(self.leader(topic, partition)), ask
        )

    def leader(self, topic: str, partition: int) -> int:
        """The leader's id. Raises LeaderNotAvailableError, MissingTopicError."""
        entry = self.cache.partition(topic, partition)
        patience = self.patience(f"leader of {topic}-{partition}")
        while entry is None:
            found = self.metadata([topic])[topic]
            entry = self.cache.partition(topic, partition)
            if entry is None:
                text = f"{topic}-{partition}: the topic has {len(found.partitions)} partitions"
                if patience.waited_s >= UNKNOWN_TOPIC_S:
                    raise MissingTopicError(text)
                self._ask_another()
                patience.pause_after(UnknownTopicOrPartitionError(text))
        if entry.leader not in self.cache.brokers:
            raise kafka_error(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return entry.leader

    def connection(self, broker_id: int) -> BlockingConnection:
        """A connection to this broker. Raises OSError, KafkaError when there is none for now."""
        if not self.cache.brokers:
            self._refresh([])
        broker = self.cache.brokers.get(broker_id)
        if broker is None:
            raise kafka_error(ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id} is not there")
        return self._connect(broker.host, broker.port)

    def check_out(self, connection: BlockingConnection) -> BlockingConnection:
        """Take it from the pool: a stream's replies must not meet those of other calls."""
        self._pool.pop((connection.host, connection.port), None)
        return connection

    def give_back(self, connection: BlockingConnection, *, fit: bool) -> None:
        """The end of `check_out`; a connection with a reply outstanding is not fit."""
        place = (connection.host, connection.port)
        if fit and connection.is_open and place not in self._pool:
            self._pool[place] = connection
        else:
            connection.close()

    def drop(self, connection: BlockingConnection) -> None:
        """Close it, and never use it again."""
        connection.close()
        self._pool = {k: c for k, c in self._pool.items() if c is not connection}

    def refresh_quietly(self, topics: list[str]) -> None:
        """Ask for metadata once; who calls tries on, and tells what it met when time is up."""
        try:
            self._refresh(topics)
        except (OSError, KafkaError):
            return

    def _repeat(
        self,
        patience: RetryTimer,
        topics: list[str],
        connect: Callable[[], BlockingConnection],
        ask: Callable[[BlockingConnection], T],
    ) -> T:
        while True:
            connection: BlockingConnection | None = None
            try:
                connection = connect()
                return ask(connection)
            except (OSError, KafkaError, SchemaError) as e:
                if connection is not None and not isinstance(e, KafkaError):
                    self.drop(connection)
                patience.pause_after(e)
                self.refresh_quietly(topics)

    def _missing(self, name: str, patience: RetryTimer) -> KafkaError:
        code = self.cache.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return kafka_error(code, f"topic {name}")
        allowed = VANISHED_TOPIC_S if name in self._ever_seen else UNKNOWN_TOPIC_S
        self._ask_another()
        if patience.waited_s < allowed:
            return kafka_error(code, f"topic {name}")
        return MissingTopicError(f"topic {name}")

    def _connect(self, host: str, port: int) -> BlockingConnection:
        connection = self._pool.get((host, port))
        if connection is None:
            connection = BlockingConnection(
                host,
                port,
                client_id=self._client_id,
                timeout_s=self._request_timeout_s,
                credentials=self._credentials,
            )
            self._pool[host, port] = connection
        return connection

    def _addresses(self) -> list[Address]:
        """Every broker there is or was said to be: the one that answered last comes first."""
        known = [(b.host, b.port) for b in self.cache.brokers.values()]
        found = list(dict.fromkeys([*known, *self._bootstrap]))
        if self._ask_first in found:
            at = found.index(self._ask_first)
            found = [*found[at:], *found[:at]]
        return found

    def _ask_another(self) -> None:
        addresses = self._addresses()
        self._ask_first = addresses[1 % len(addresses)]

    def _ask_any(self, ask: Callable[[BlockingConnection], T]) -> T:
        """The first broker's answer; the next one's when the connection fails.

        Raises ConnectionError; NoBrokersAvailableError when none was ever reached.
        """
        failures = []
        for host, port in self._addresses():
            connection: BlockingConnection | None = None
            try:
                connection = self._connect(host, port)
                answer = ask(connection)
            except (OSError, SchemaError) as e:
                failures.append(f"{host}:{port}: {e}")
                if connection is not None:
                    self.drop(connection)
            except KafkaError:
                self._ask_another()
                raise
            else:
                self._ask_first = (host, port)
                return answer
        story = "; ".join(failures)
        if self.cache.brokers:  # they were there, so they come back: `is_retriable` says yes
            raise ConnectionError(story)
        raise NoBrokersAvailableError(story)

    def _refresh(self, topics: list[str] | None) -> None:
        request = metadata_request(topics, auto_create=False)

        def ask(connection: BlockingConnection) -> MetadataResponse:
            reply = connection.call(request, MetadataResponse, timeout_s=METADATA_TIMEOUT_S)
            if not reply.brokers:  # it has just started and not been told of the cluster yet
                raise ConnectionError("knows of no brokers yet")
            return reply

        self.cache.update(self._ask_any(ask))
