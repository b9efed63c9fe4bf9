"""The asyncio shell around the metadata machine: connections by node id, requests to the right one.

One `Cluster` serves one producer, consumer or admin, on one loop. It finds brokers from the
bootstrap list, keeps one connection per node (a second one where long polls would block others),
refreshes metadata when asked or when it grows old, and finds coordinators.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from headwater.client.connection import Connection, open_connection
from headwater.client.core.metadata import NO_LEADER, MetadataCache, metadata_request
from headwater.client.errors import (
    KafkaTimeoutError,
    NoBrokersAvailableError,
    kafka_error,
)
from headwater.clock import Clock
from headwater.entropy import Entropy
from headwater.errors import ErrorCode, KafkaError
from headwater.ports.credentials import NO_CREDENTIALS, Credentials
from headwater.system import SystemClock, SystemEntropy
from headwater.wire.apis.k03_metadata import MetadataResponse
from headwater.wire.apis.k10_find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from headwater.wire.schema import Message, SchemaError

T = TypeVar("T")
R = TypeVar("R", bound=Message)

KEY_TYPE_GROUP = 0
KEY_TYPE_TRANSACTION = 1
COORDINATOR_NAMES_VERSION = 3
"""The last FindCoordinator version that asks for one key."""
UNKNOWN_TOPIC_TRIES = 6
"""A new topic takes a moment to reach all brokers; a topic still unknown then does not exist."""
ELSEWHERE_S = 1.0
"""How long a broker may take that is asked out of turn: it may be the one that is cut off."""
WAIT_TOLD_MS = 1_000
"""Who will have waited so long is told for what (`ClusterOptions.on_wait`)."""


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """Limits of talking to a cluster, with Kafka's names and defaults (connect: shorter)."""

    client_id: str = "headwater"
    request_timeout_ms: int = 30_000
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 50
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    default_api_timeout_ms: int = 60_000
    credentials: Credentials = NO_CREDENTIALS
    on_wait: Callable[[str, int], None] | None = None
    """Hears, on the loop's thread and once per call, what a call waits for that is tried again, and
    for how many ms at most."""


class Cluster:
    """Brokers of one cluster as seen by one client."""

    def __init__(
        self,
        bootstrap: list[tuple[str, int]],
        options: ClusterOptions,
        clock: Clock | None = None,
        entropy: Entropy | None = None,
    ) -> None:
        self.cache = MetadataCache()
        self.options = options
        self.clock = clock or SystemClock()
        self.entropy = entropy or SystemEntropy()
        self._bootstrap = bootstrap
        self._connections: dict[tuple[int, str], Connection] = {}
        self._connecting: dict[tuple[int, str], asyncio.Task[Connection]] = {}
        self._refresh_lock = asyncio.Lock()
        self._asked: dict[int, int] = {}
        """By node, the number of the refresh that asked it last."""
        self._refreshes = 0
        self._is_closed = False

    async def bootstrap(self, timeout_ms: int) -> None:
        """First contact, tried again until time is up. Raises NoBrokersAvailableError."""
        began = self.clock.monotonic()
        deadline = began + timeout_ms / 1000
        on_wait = self.options.on_wait
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
                if on_wait is not None and again_at - began >= WAIT_TOLD_MS / 1000:
                    on_wait(str(e), timeout_ms)
                    on_wait = None
                await asyncio.sleep(pause)

    async def close(self) -> None:
        """Close every connection; requests under way fail with ConnectionError."""
        self._is_closed = True
        for task in self._connecting.values():
            task.cancel()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def known_connection(self, node_id: int, lane: str = "") -> Connection | None:
        """The open connection to a node, if there is one."""
        known = self._connections.get((node_id, lane))
        return known if known is not None and known.is_open else None

    async def connection(self, node_id: int, lane: str = "") -> Connection:
        """The connection to a node, opened when there is none. Raises OSError, KafkaError.

        Lanes are separate connections to one node: a parked fetch must not delay a heartbeat.
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
        connection = await self._open(broker.host, broker.port)
        self._connections[place] = connection
        return connection

    async def _open(self, host: str, port: int) -> Connection:
        if self._is_closed:
            raise ConnectionError("the client is closed")
        return await open_connection(
            host,
            port,
            client_id=self.options.client_id,
            timeout_s=self.options.connect_timeout_ms / 1000,
            credentials=self.options.credentials,
        )

    async def call(self, node_id: int, request: Message, reply_type: type[R], lane: str = "") -> R:
        """Ask one node."""
        return await self.call_over(await self.connection(node_id, lane), request, reply_type)

    async def call_over(
        self,
        connection: Connection,
        request: Message,
        reply_type: type[R],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Ask over a connection, once a throttle that the broker told there is over (KIP-219);
        then wait for `timeout_s`, or request_timeout_ms."""
        while (held_s := connection.held_s) > 0:
            await asyncio.sleep(held_s)
        if timeout_s is None:
            timeout_s = self.options.request_timeout_ms / 1000
        reply = await connection.call(request, reply_type, version=version, timeout_s=timeout_s)
        connection.hold(reply)
        return reply

    async def any_node(self) -> int:
        """A live node, preferably one already connected. Asks bootstrap servers when none is."""
        if not self.cache.brokers:
            await self.refresh(())
        for (node_id, _), connection in self._connections.items():
            if connection.is_open and node_id in self.cache.brokers:
                return node_id
        nodes = sorted(self.cache.brokers)
        return nodes[int(self.entropy.uniform(0, len(nodes) - 0.001))]

    async def controller_node(self) -> int:
        """The controller as metadata names it, else any node."""
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
        elsewhere: bool = False,
    ) -> None:
        """Ask for metadata of `topics` (none: brokers only; None: all topics).

        Known brokers are asked first, then the bootstrap servers (KIP-899); with `elsewhere` before
        all the one that was not asked for longest, if it answers soon. Raises
        NoBrokersAvailableError when nobody answers.
        """
        names = None if topics is None else list(topics)
        failures: list[str] = []
        async with self._refresh_lock:
            self._refreshes += 1
            asked = metadata_request(names, auto_create=auto_create)
            for turn, find in enumerate(self._sources(elsewhere=elsewhere)):
                limit_s = ELSEWHERE_S if elsewhere and not turn else None
                try:
                    async with asyncio.timeout(limit_s):
                        connection, is_temporary = await find()
                        try:
                            reply = await self.call_over(connection, asked, MetadataResponse)
                        finally:
                            if is_temporary:
                                connection.close()
                    if not reply.brokers:
                        failures.append("an answer without brokers")
                        continue
                    self._take(reply)
                    return
                except (OSError, KafkaError, SchemaError, ValueError) as e:
                    failures.append(str(e) or type(e).__name__)
        raise NoBrokersAvailableError(
            f"none of {len(failures)} brokers answered: {'; '.join(failures)}"
        )

    def _take(self, reply: MetadataResponse) -> None:
        before = self.cache.brokers
        self.cache.update(reply)
        for place, connection in list(self._connections.items()):
            now, was = self.cache.brokers.get(place[0]), before.get(place[0])
            # A broker that came back under another address is reached there.
            if now is not None and was is not None and now[1:3] != was[1:3]:
                connection.close()
                del self._connections[place]

    def _sources(
        self, *, elsewhere: bool
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
                    raise ConnectionError(f"{host}:{port}: {e or type(e).__name__}") from e

            return find

        def is_held(node_id: int) -> bool:
            known = self.known_connection(node_id)
            return known is not None and known.held_s > 0

        if elsewhere and nodes:
            # Once more at the end, and then for as long as it takes.
            chosen = min(nodes, key=lambda n: (is_held(n), self._asked.get(n, 0)))
            nodes = [chosen, *(n for n in nodes if n != chosen), chosen]
        sources = [by_node(n) for n in nodes if not is_held(n)]
        sources += [by_address(*address) for address in self._bootstrap]
        return sources + [by_node(n) for n in nodes if is_held(n)]

    async def coordinator(self, key: str, key_type: int = KEY_TYPE_GROUP) -> int:
        """The node that coordinates a group (or transactional id). Raises KafkaError to retry."""
        node = await self.any_node()
        connection = await self.connection(node)
        version = connection.version_for(FindCoordinatorRequest)
        by_list = version > COORDINATOR_NAMES_VERSION
        request = FindCoordinatorRequest(
            key="" if by_list else key,
            key_type=key_type,
            coordinator_keys=(key,) if by_list else (),
        )
        reply = await self.call_over(connection, request, FindCoordinatorResponse, version=version)
        answer = reply.coordinators[0] if by_list else reply
        if answer.error_code:
            detail = answer.error_message or f"coordinator of {key}"
            raise kafka_error(answer.error_code, detail)
        if answer.node_id not in self.cache.brokers:
            await self.refresh(())
        return answer.node_id

    async def leader(self, topic: str, partition: int) -> int:
        """The node that leads a partition; refreshes when it is not known. Raises KafkaError."""
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
        """Exponential with jitter of a fifth (KIP-580)."""
        options = self.options
        grown = options.retry_backoff_ms * (1 << min(attempt, 16))
        step = float(min(options.retry_backoff_max_ms, grown))
        return step * self.entropy.uniform(0.8, 1.2) / 1000

    async def retrying(
        self,
        what: str,
        attempt: Callable[[], Awaitable[T]],
        timeout_ms: int | None = None,
        *,
        topics: Iterable[str] = (),
        fatal: frozenset[ErrorCode] = frozenset(),
    ) -> T:
        """`attempt` until it succeeds, fails for good, or time is up (KafkaTimeoutError).

        Lost connections and retriable errors are tried again after a back-off and a refresh. When
        time is up during an attempt it is given up, and what the one before met is raised.
        """
        limit_ms = self.options.default_api_timeout_ms if timeout_ms is None else timeout_ms
        began = self.clock.monotonic()
        deadline = began + limit_ms / 1000
        on_wait = self.options.on_wait
        names = list(topics)
        tries = 0
        met: KafkaError | None = None
        while True:
            try:
                async with asyncio.timeout(max(0.0, deadline - self.clock.monotonic())):
                    return await attempt()
            except (OSError, KafkaError) as e:
                if isinstance(e, KafkaError) and not isinstance(e, OSError):
                    cured = e.retriable or e.code == ErrorCode.BROKER_NOT_AVAILABLE
                    missing = e.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if not cured or e.code in fatal or (missing and tries >= UNKNOWN_TOPIC_TRIES):
                        raise
                if isinstance(e, KafkaError):
                    met = e
                pause = self.backoff_s(tries)
                tries += 1
                if self.clock.monotonic() + pause >= deadline:
                    if isinstance(e, KafkaError):
                        raise
                    if met is not None and isinstance(e, TimeoutError):
                        raise met from None
                    text = f"{what}: not done within {limit_ms} ms: {e or type(e).__name__}"
                    raise KafkaTimeoutError(text) from e
                waited_s = self.clock.monotonic() + pause - began
                is_unknown = getattr(e, "code", None) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if on_wait and waited_s >= WAIT_TOLD_MS / 1000 and not is_unknown:
                    on_wait(f"{what}: {e or type(e).__name__}", limit_ms)
                    on_wait = None
                await asyncio.sleep(pause)
                await self._refresh_quietly(names)

    async def _refresh_quietly(self, topics: list[str]) -> None:
        try:
            await self.refresh(topics)
        except KafkaError:
            return  # the caller's own attempt meets it and tells it
