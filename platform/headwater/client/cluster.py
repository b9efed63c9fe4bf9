"""Connections to the brokers of a cluster, its metadata, and retries: asyncio.

One `Cluster` serves one producer, consumer or admin client, on one loop. It finds the brokers from
the bootstrap servers, keeps a connection per node and lane, refreshes the metadata on request, and
finds coordinators. The metadata itself is `headwater.client.core.metadata`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from headwater.client.connection import Connection, open_connection
from headwater.client.core.metadata import NO_LEADER, MetadataCache, metadata_request
from headwater.client.errors import (
    KafkaTimeoutError,
    NoBrokersAvailableError,
    kafka_error,
)
from headwater.client.values import Broker
from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.credentials import NO_CREDENTIALS, Credentials
from headwater.sockets import SYSTEM_BUFFER
from headwater.system import SystemClock, SystemEntropy
from headwater.wire.apis.k03_metadata import MetadataResponse
from headwater.wire.apis.k10_find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.wire.schema import Message, SchemaError

T = TypeVar("T")
R = TypeVar("R", bound=Message)

KEY_TYPE_GROUP = 0
KEY_TYPE_TRANSACTION = 1
COORDINATOR_NAMES_VERSION = 3
"""The last FindCoordinator version with one key per request."""
LOGIN_REFUSALS = frozenset(
    (
        ErrorCode.SASL_AUTHENTICATION_FAILED,
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ErrorCode.ILLEGAL_SASL_STATE,
    )
)
UNKNOWN_TOPIC_TRIES = 6
"""A new topic takes a moment to reach all brokers. One that is unknown after so many attempts does
not exist."""
ON_WAIT_AFTER_S = 1.0
"""A call that waits so long calls `ClusterOptions.on_wait`."""
LOG_WAIT_AFTER_S = 5.0
"""A call that waits so long logs its reason, and again after twice the time."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Limits of the connections, with Kafka's names."""

    client_id: str = "headwater"
    request_timeout_ms: int = 30_000
    connect_timeout_ms: float = 10_000
    """Kafka's socket.connection.setup.timeout.ms."""
    retry_backoff_ms: float = 50
    retry_backoff_max_ms: float = 1_000
    metadata_max_age_ms: float = 300_000
    default_api_timeout_ms: float = 60_000
    alternate_broker_timeout_ms: float = 1_000
    """How long `refresh(alternate=True)` waits for the broker that it tries first: that one may be
    partitioned from the others."""
    receive_buffer_bytes: int = SYSTEM_BUFFER
    send_buffer_bytes: int = SYSTEM_BUFFER
    """Of the sockets; large ones for long distances."""
    credentials: Credentials = NO_CREDENTIALS
    on_wait: Callable[[str, int], object] | None = None
    """Called on the loop's thread, once per call: (what a retried call waits for, its time limit in
    ms)."""


class Unreachable(NamedTuple):
    """A node that could not be connected to."""

    since: float
    """Monotonic seconds."""
    reason: str


class Cluster:
    """The brokers of one cluster, for one client."""

    def __init__(
        self,
        bootstrap: list[tuple[str, int]],
        options: ClusterOptions,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
        on_update: Callable[[], None] | None = None,
    ) -> None:
        """`on_update` is called on the loop after each metadata response."""
        self.cache = MetadataCache()
        self.options = options
        self.clock = clock or SystemClock()
        self.entropy = entropy or SystemEntropy()
        self.unreachable: dict[int, Unreachable] = {}
        """By node id, until a connection succeeds."""
        self._on_update = on_update
        self._bootstrap = bootstrap
        self._connections: dict[tuple[int, str], Connection] = {}
        self._connecting: dict[tuple[int, str], asyncio.Task[Connection]] = {}
        self._refresh_lock = asyncio.Lock()
        self._asked: dict[int, int] = {}
        """By node id, the number of the last refresh that asked it."""
        self._refreshes = 0
        self._is_closed = False

    async def bootstrap(self, timeout_ms: float) -> None:
        """Fetch the brokers for the first time, with retries. Raises NoBrokersAvailableError."""
        began = self.clock.monotonic()
        deadline = began + timeout_ms / 1000
        reporter = _WaitReporter(self.options.on_wait, timeout_ms)
        tries = 0
        while True:
            try:
                await self.refresh(())
                return
            except NoBrokersAvailableError as e:
                pause = self.backoff_s(tries)
                tries += 1
                again_at = self.clock.monotonic() + pause
                if again_at >= deadline:
                    raise
                reporter.waited(again_at - began, str(e))
                await asyncio.sleep(pause)

    async def close(self) -> None:
        """Close every connection; requests in flight fail with ConnectionError."""
        self._is_closed = True
        for task in self._connecting.values():
            task.cancel()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def known_connection(self, node_id: int, lane: str = "") -> Connection | None:
        """The open connection to a node on this lane, or None."""
        known = self._connections.get((node_id, lane))
        return known if known is not None and known.is_open else None

    async def connection(self, node_id: int, lane: str = "") -> Connection:
        """The connection to a node, opened if necessary. Raises OSError, KafkaError.

        Lanes are separate connections to one node: a fetch that the broker parks must not delay a
        heartbeat.
        """
        place = (node_id, lane)
        known = self._connections.get(place)
        if known is not None and known.is_open:
            return known
        task = self._connecting.get(place)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._connect(place))
            self._connecting[place] = task
            task.add_done_callback(lambda _: self._connecting.pop(place, None))
        return await asyncio.shield(task)

    async def _connect(self, place: tuple[int, str]) -> Connection:
        broker = self.cache.brokers.get(place[0])
        if broker is None:
            raise kafka_error(ErrorCode.BROKER_NOT_AVAILABLE, f"no live broker {place[0]} is known")
        try:
            connection = await self._open(broker.host, broker.port)
        except (OSError, KafkaError, SchemaError) as e:
            self._note_unreachable(place[0], broker, e)
            raise
        self.unreachable.pop(place[0], None)
        self._connections[place] = connection
        return connection

    def _note_unreachable(self, node_id: int, broker: Broker, error: Exception) -> None:
        limit_s = self.options.connect_timeout_ms / 1000
        reason = str(error) or f"no answer within {limit_s:g} s"
        known = self.unreachable.get(node_id)
        since = self.clock.monotonic() if known is None else known.since
        self.unreachable[node_id] = Unreachable(since, f"{broker.host}:{broker.port}: {reason}")

    async def _open(self, host: str, port: int) -> Connection:
        if self._is_closed:
            raise ConnectionError("the client is closed")
        return await open_connection(
            host,
            port,
            client_id=self.options.client_id,
            timeout_s=self.options.connect_timeout_ms / 1000,
            credentials=self.options.credentials,
            buffers=(self.options.receive_buffer_bytes, self.options.send_buffer_bytes),
        )

    async def call(self, node_id: int, request: Message, reply_type: type[R], lane: str = "") -> R:
        """Send a request to one node and await its response."""
        return await self.call_on(await self.connection(node_id, lane), request, reply_type)

    async def call_on(
        self,
        connection: Connection,
        request: Message,
        reply_type: type[R],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Send a request on a connection once its throttle time has passed (KIP-219), and await
        the response for `timeout_s`, by default `request_timeout_ms`."""
        while (throttled_s := connection.throttled_s) > 0:
            await asyncio.sleep(throttled_s)
        if timeout_s is None:
            timeout_s = self.options.request_timeout_ms / 1000
        reply = await connection.call(request, reply_type, version=version, timeout_s=timeout_s)
        connection.throttle(reply)
        return reply

    async def any_node(self) -> int:
        """A live node, preferably one with a connection. Raises NoBrokersAvailableError."""
        if not self.cache.brokers:
            await self.refresh(())
        for (node_id, _), connection in self._connections.items():
            if connection.is_open and node_id in self.cache.brokers:
                return node_id
        nodes = sorted(self.cache.brokers)
        return nodes[int(self.entropy.uniform(0, len(nodes) - 0.001))]

    async def controller_node(self) -> int:
        """The controller by the metadata, else any node."""
        if self.cache.controller_id not in self.cache.brokers:
            await self.refresh(())
        if self.cache.controller_id in self.cache.brokers:
            return self.cache.controller_id
        return await self.any_node()

    async def refresh(
        self,
        topics: Iterable[str] | None,
        *,
        auto_create: bool = False,
        alternate: bool = False,
    ) -> None:
        """Fetch the metadata of `topics` (empty: brokers only; None: all topics).

        `auto_create` lets the broker create the topics that are absent. Known brokers are asked
        first, then the bootstrap servers (KIP-899). With `alternate`, the broker that was not asked
        for the longest time comes first and has `alternate_broker_timeout_ms`. Raises
        NoBrokersAvailableError when no broker answers; the KafkaError of a refused login when all
        refuse it from the start: no retry would cure a wrong password.
        """
        names = None if topics is None else list(topics)
        failures: list[str] = []
        refusals: list[KafkaError] = []
        async with self._refresh_lock:
            self._refreshes += 1
            request = metadata_request(names, auto_create=auto_create)
            for turn, find in enumerate(self._sources(alternate=alternate)):
                first_s = self.options.alternate_broker_timeout_ms / 1000
                try:
                    async with asyncio.timeout(first_s if alternate and not turn else None):
                        connection, is_temporary = await find()
                        try:
                            reply = await self.call_on(connection, request, MetadataResponse)
                        finally:
                            if is_temporary:
                                connection.close()
                    if not reply.brokers:
                        failures.append("a response without brokers")
                        continue
                    self._apply(reply)
                    return
                except (OSError, KafkaError, SchemaError, ValueError) as e:
                    failures.append(str(e) or type(e).__name__)
                    if isinstance(e, KafkaError) and e.code in LOGIN_REFUSALS:
                        refusals.append(e)
        if refusals and len(refusals) == len(failures) and not self.cache.brokers:
            raise refusals[0]
        raise NoBrokersAvailableError(
            f"none of {len(failures)} brokers answered: {'; '.join(failures)}"
        )

    def _apply(self, reply: MetadataResponse) -> None:
        before = self.cache.brokers
        self.cache.update(reply)
        for place, connection in list(self._connections.items()):
            now, was = self.cache.brokers.get(place[0]), before.get(place[0])
            # A broker that restarted with another address is reached there.
            if now is not None and was is not None and now[1:3] != was[1:3]:
                connection.close()
                del self._connections[place]
        if self._on_update is not None:
            self._on_update()

    def _sources(
        self, *, alternate: bool
    ) -> list[Callable[[], Awaitable[tuple[Connection, bool]]]]:
        nodes = sorted(self.cache.brokers, key=lambda n: self.known_connection(n) is None)

        def by_node(node_id: int) -> Callable[[], Awaitable[tuple[Connection, bool]]]:
            async def find() -> tuple[Connection, bool]:
                self._asked[node_id] = self._refreshes
                return await self.connection(node_id), False

            return find

        def by_address(host: str, port: int) -> Callable[[], Awaitable[tuple[Connection, bool]]]:
            async def find() -> tuple[Connection, bool]:
                try:
                    return await self._open(host, port), True
                except (OSError, KafkaError) as e:
                    if isinstance(e, KafkaError) and e.code in LOGIN_REFUSALS:
                        raise kafka_error(e.code, f"{host}:{port}: {e.detail}") from e
                    raise ConnectionError(f"{host}:{port}: {e or type(e).__name__}") from e

            return find

        def is_throttled(node_id: int) -> bool:
            known = self.known_connection(node_id)
            return known is not None and known.throttled_s > 0

        if alternate and nodes:
            # It is asked once more at the end, then without the short time limit.
            chosen = min(nodes, key=lambda n: (is_throttled(n), self._asked.get(n, 0)))
            nodes = [chosen, *(n for n in nodes if n != chosen), chosen]
        sources = [by_node(n) for n in nodes if not is_throttled(n)]
        sources += [by_address(*address) for address in self._bootstrap]
        return sources + [by_node(n) for n in nodes if is_throttled(n)]

    async def coordinator(self, key: str, key_type: int = KEY_TYPE_GROUP) -> int:
        """The coordinator's node id, of a group or transactional id. Raises OSError, KafkaError."""
        return (await self.coordinators((key,), key_type))[key]

    async def coordinators(
        self, keys: tuple[str, ...], key_type: int = KEY_TYPE_GROUP
    ) -> dict[str, int]:
        """Key -> its coordinator's node id, by one request (KIP-699) where the broker serves it.
        Raises OSError, KafkaError."""
        connection = await self.connection(await self.any_node())
        version = connection.version_for(FindCoordinatorRequest)
        requests = [FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)]
        if version <= COORDINATOR_NAMES_VERSION:
            requests = [FindCoordinatorRequest(key=key, key_type=key_type) for key in keys]
        found: dict[str, int] = {}
        for request in requests:
            reply = await self.call_on(
                connection, request, FindCoordinatorResponse, version=version
            )
            answers: dict[str, Coordinator | FindCoordinatorResponse]
            answers = {row.key: row for row in reply.coordinators} or {request.key: reply}
            for key, answer in answers.items():
                if answer.error_code:
                    detail = answer.error_message or f"coordinator of {key}"
                    raise kafka_error(answer.error_code, detail)
                found[key] = answer.node_id
        if not self.cache.brokers.keys() >= {*found.values()}:
            await self.refresh(())
        return found

    async def leader(self, topic: str, partition: int) -> int:
        """The node id of a partition's leader, refreshed if it is not known. Raises KafkaError."""
        node = self.cache.leader(topic, partition)
        if node == NO_LEADER or node not in self.cache.brokers:
            await self.refresh((topic,))
            node = self.cache.leader(topic, partition)
        if self.cache.partition(topic, partition) is None:
            code = self.cache.errors.get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            raise kafka_error(code, f"{topic}-{partition}")
        if node == NO_LEADER or node not in self.cache.brokers:
            text = f"{topic}-{partition} has no live leader"
            raise kafka_error(ErrorCode.LEADER_NOT_AVAILABLE, text)
        return node

    def backoff_s(self, attempt: int) -> float:
        """Seconds before retry `attempt` (from 0): exponential, with a jitter of 20 % (KIP-580)."""
        options = self.options
        grown = options.retry_backoff_ms * (1 << min(attempt, 16))
        step = float(min(options.retry_backoff_max_ms, grown))
        return step * self.entropy.uniform(0.8, 1.2) / 1000

    async def retrying(
        self,
        what: str,
        attempt: Callable[[], Awaitable[T]],
        timeout_ms: float | None = None,
        *,
        topics: Iterable[str] = (),
        fatal: frozenset[ErrorCode] = frozenset(),
    ) -> T:
        """Repeat `attempt` until it succeeds, fails for good, or the time is up.

        Lost connections and retriable errors, except those in `fatal`, are retried after a backoff
        and a metadata refresh of `topics`. When the time is up during an attempt, it is cancelled,
        and the error of the attempt before is raised, or KafkaTimeoutError without one. The default
        of `timeout_ms` is `default_api_timeout_ms`.
        """
        limit_ms = self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        began = self.clock.monotonic()
        deadline = began + limit_ms / 1000
        reporter = _WaitReporter(self.options.on_wait, limit_ms)
        names = list(topics)
        tries = 0
        last_error: KafkaError | None = None
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline - self.clock.monotonic())):
                    return await attempt()
            except (OSError, KafkaError) as e:
                if _is_final(e, fatal, tries):
                    raise
                if isinstance(e, KafkaError):
                    last_error = e
                pause = self.backoff_s(tries)
                tries += 1
                if self.clock.monotonic() + pause >= deadline:
                    if isinstance(e, KafkaError):
                        raise
                    if last_error is not None and isinstance(e, TimeoutError):
                        raise last_error from None
                    text = f"{what}: not done within {limit_ms:g} ms: {e or type(e).__name__}"
                    raise KafkaTimeoutError(text) from e
                if getattr(e, "code", None) is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    waited_s = self.clock.monotonic() + pause - began
                    reporter.waited(waited_s, f"{what}: {e or type(e).__name__}")
                await asyncio.sleep(pause)
                await self._refresh_if_possible(names)

    async def _refresh_if_possible(self, topics: list[str]) -> None:
        try:
            await self.refresh(topics)
        except KafkaError:
            return  # the next attempt meets the same error, and its caller raises it


def _is_final(error: Exception, fatal: frozenset[ErrorCode], tries: int) -> bool:
    """True when a retry cannot help. A topic may be unknown for the first few attempts."""
    if not isinstance(error, KafkaError) or isinstance(error, OSError):
        return False
    if not (error.retriable or error.code == ErrorCode.BROKER_NOT_AVAILABLE):
        return True
    is_unknown = error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return error.code in fatal or (is_unknown and tries >= UNKNOWN_TOPIC_TRIES)


class _WaitReporter:
    """Reports what a call waits for: once to `on_wait`, or to the log at growing intervals."""

    def __init__(self, on_wait: Callable[[str, int], object] | None, limit_ms: float) -> None:
        self._on_wait = on_wait
        self._limit_ms = limit_ms
        self._next_s = LOG_WAIT_AFTER_S if on_wait is None else ON_WAIT_AFTER_S

    def waited(self, seconds: float, text: str) -> None:
        """The call has waited so long, because of `text`."""
        if seconds < self._next_s:
            return
        if self._on_wait is not None:
            self._on_wait(text, int(self._limit_ms))
            self._next_s = float("inf")
            return
        limit_s = self._limit_ms / 1000
        log.warning("waiting for %.0f s, up to %g s: %s", seconds, limit_s, text)
        self._next_s = seconds * 2
