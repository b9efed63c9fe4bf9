"""Blocking connections to a cluster's brokers, and calls that survive the death of a broker.

A call is retried until it succeeds, fails for good, or its time is up, with fresh metadata from any
known broker or bootstrap server. This covers lost connections and every error that Kafka calls
retriable: an election, a leader that does not know its high watermark yet (KIP-207), replicas that
are missing for a moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from headwater.client.addresses import parse_bootstrap
from headwater.client.blocking.connection import BlockingConnection
from headwater.client.core.metadata import MetadataCache, TopicMetadata, metadata_request
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
"""After this the next broker is asked: one may hang."""
UNKNOWN_TOPIC_S = 1.0
"""How long a topic may be unknown: a new one takes a moment to reach every broker."""
VANISHED_TOPIC_S = 10.0
"""The same for a topic that was seen before: a broker that starts learns its topics gradually."""

Address = tuple[str, int]
T = TypeVar("T")


class MissingTopicError(UnknownTopicOrPartitionError):
    """No broker knows the topic or partition, though there was time enough to learn of it."""


class RetryTimer:
    """The time limit of retries, and the pauses between them. `what` is named in errors."""

    def __init__(
        self,
        clock: Clock,
        timeout_s: float,
        what: str,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._sleep = sleep
        self._clock = clock
        self._timeout_s = timeout_s
        self._what = what
        self.restart()

    def restart(self) -> None:
        """An attempt succeeded: the time limit begins again."""
        self._started = self._clock.monotonic()
        self._pause_s = BACKOFF_FIRST_S

    @property
    def waited_s(self) -> float:
        """Seconds since the last success."""
        return self._clock.monotonic() - self._started

    def check(self, error: Exception) -> None:
        """Raise `error` if no retry can cure it, KafkaTimeoutError if the time is up."""
        if not is_retriable(error):
            raise error
        if self.waited_s >= self._timeout_s:
            raise KafkaTimeoutError(
                f"{self._what} did not succeed within {self._timeout_s:g} s: {error}"
            ) from error

    def pause_after(self, error: Exception) -> None:
        """`check`, then pause, each time for longer."""
        self.check(error)
        self._sleep(self._pause_s)
        self._pause_s = min(BACKOFF_MAX_S, self._pause_s * 2)


def is_retriable(error: Exception) -> bool:
    """True for a lost connection and for errors that a new leader or time can cure."""
    if isinstance(error, MissingTopicError | KafkaTimeoutError):
        return False
    if isinstance(error, KafkaError):
        return error.retriable
    return isinstance(error, OSError)


class BlockingCluster:
    """A pool of blocking connections, the cluster's metadata, and calls with retries."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        clock: Clock,
        *,
        client_id: str,
        request_timeout_s: float,
        retry_timeout_s: float,
        credentials: Credentials = NO_CREDENTIALS,
        connect: Callable[..., BlockingConnection] = BlockingConnection,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`connect` and `sleep` are for tests."""
        self._new_connection = connect
        self._sleep = sleep
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

    def retry_timer(self, what: str, timeout_s: float | None = None) -> RetryTimer:
        """The time limit of a call, by default `retry_timeout_s`."""
        return RetryTimer(self._clock, timeout_s or self._retry_timeout_s, what, self._sleep)

    def metadata(self, topics: Iterable[str] | None) -> dict[str, TopicMetadata]:
        """Fetch the metadata of these topics (None: all), by name. Raises MissingTopicError."""
        names = None if topics is None else list(topics)
        timer = self.retry_timer("metadata")
        while True:
            try:
                self._refresh(names)
                missing = [name for name in names or () if name not in self.cache.topics]
                if not missing:
                    break
                raise self._missing(missing[0], timer)
            except (OSError, KafkaError) as e:
                timer.pause_after(e)
        self._ever_seen.update(self.cache.topics)
        wanted = self.cache.topics if names is None else names
        return {name: self.cache.topics[name] for name in wanted}

    def with_any(
        self, what: str, ask: Callable[[BlockingConnection], T], timeout_s: float | None = None
    ) -> T:
        """`ask` any broker, and another one if it fails."""
        timer = self.retry_timer(what, timeout_s)
        while True:
            try:
                return self.ask_any(ask)
            except (OSError, KafkaError) as e:
                timer.pause_after(e)

    def with_broker(
        self,
        what: str,
        broker_id: int,
        ask: Callable[[BlockingConnection], T],
        timeout_s: float | None = None,
    ) -> T:
        """`ask` this broker, at its current address."""
        timer = self.retry_timer(what, timeout_s)
        return self._repeat(timer, [], lambda: self.connection(broker_id), ask)

    def with_leader(
        self, what: str, topic: str, partition: int, ask: Callable[[BlockingConnection], T]
    ) -> T:
        """`ask` the partition's current leader."""
        timer = self.retry_timer(f"{what} {topic}-{partition}")
        return self._repeat(
            timer, [topic], lambda: self.connection(self.leader(topic, partition)), ask
        )

    def leader(self, topic: str, partition: int) -> int:
        """The leader's id. Raises LeaderNotAvailableError, MissingTopicError."""
        entry = self.cache.partition(topic, partition)
        timer = self.retry_timer(f"leader of {topic}-{partition}")
        while entry is None:
            found = self.metadata([topic])[topic]
            entry = self.cache.partition(topic, partition)
            if entry is None:
                text = f"{topic}-{partition}: the topic has {len(found.partitions)} partitions"
                if timer.waited_s >= UNKNOWN_TOPIC_S:
                    raise MissingTopicError(text)
                self._ask_another()
                timer.pause_after(UnknownTopicOrPartitionError(text))
        if entry.leader not in self.cache.brokers:
            raise kafka_error(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return entry.leader

    def connection(self, broker_id: int) -> BlockingConnection:
        """A connection to this broker. Raises OSError, KafkaError when it is not live."""
        if not self.cache.brokers:
            self._refresh([])
        broker = self.cache.brokers.get(broker_id)
        if broker is None:
            raise kafka_error(ErrorCode.NETWORK_EXCEPTION, f"broker {broker_id} is not live")
        return self._connect(broker.host, broker.port)

    def check_out(self, connection: BlockingConnection) -> BlockingConnection:
        """Remove it from the pool: the responses of a stream and of other calls must not mix."""
        self._pool.pop((connection.host, connection.port), None)
        return connection

    def give_back(self, connection: BlockingConnection, *, fit: bool) -> None:
        """Return it to the pool; if it is not `fit`, as a response is outstanding, close it."""
        place = (connection.host, connection.port)
        if fit and connection.is_open and place not in self._pool:
            self._pool[place] = connection
        else:
            connection.close()

    def drop(self, connection: BlockingConnection) -> None:
        """Close it and remove it from the pool."""
        connection.close()
        self._pool = {k: c for k, c in self._pool.items() if c is not connection}

    def refresh_if_possible(self, topics: list[str]) -> None:
        """Fetch metadata once. An error is dropped: the caller retries, and meets it again."""
        try:
            self._refresh(topics)
        except (OSError, KafkaError):
            return

    def _repeat(
        self,
        timer: RetryTimer,
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
                timer.pause_after(e)
                self.refresh_if_possible(topics)

    def _missing(self, name: str, timer: RetryTimer) -> KafkaError:
        code = self.cache.errors.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return kafka_error(code, f"topic {name}")
        allowed = VANISHED_TOPIC_S if name in self._ever_seen else UNKNOWN_TOPIC_S
        self._ask_another()
        if timer.waited_s < allowed:
            return kafka_error(code, f"topic {name}")
        return MissingTopicError(f"topic {name}")

    def _connect(self, host: str, port: int) -> BlockingConnection:
        connection = self._pool.get((host, port))
        if connection is None:
            connection = self._new_connection(
                host,
                port,
                client_id=self._client_id,
                timeout_s=self._request_timeout_s,
                credentials=self._credentials,
            )
            self._pool[host, port] = connection
        return connection

    def _addresses(self) -> list[Address]:
        """Every known broker and bootstrap server, the one that answered last first."""
        known = [(b.host, b.port) for b in self.cache.brokers.values()]
        found = list(dict.fromkeys([*known, *self._bootstrap]))
        if self._ask_first in found:
            at = found.index(self._ask_first)
            found = [*found[at:], *found[:at]]
        return found

    def _ask_another(self) -> None:
        addresses = self._addresses()
        self._ask_first = addresses[1 % len(addresses)]

    def ask_any(self, ask: Callable[[BlockingConnection], T]) -> T:
        """The first broker's answer, or if its connection fails, that of the next one.

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
        if self.cache.brokers:  # they answered before: worth a retry
            raise ConnectionError(story)
        raise NoBrokersAvailableError(story)

    def _refresh(self, topics: list[str] | None) -> None:
        request = metadata_request(topics, auto_create=False)

        def ask(connection: BlockingConnection) -> MetadataResponse:
            reply = connection.call(request, MetadataResponse, timeout_s=METADATA_TIMEOUT_S)
            if not reply.brokers:  # it has just started and has no metadata yet
                raise ConnectionError("the broker has no metadata yet")
            return reply

        self.cache.update(self.ask_any(ask))
