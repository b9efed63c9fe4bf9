"""ZooKeeper with session timeouts, lost connections and lost replies.

`Ensemble` is the server side: the tree, the sessions, and the time of each client's last heartbeat.
`StoreDouble` is a client. Both directions keep their order, as ZooKeeper promises: requests arrive
in the order sent, and a client gets a watch event before it reads later changes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from headwater.ports.metadata_store import (
    ConnectionLostError,
    Node,
    Operation,
    SessionExpiredError,
    SessionState,
    StoreError,
)
from headwater.testing.memory_store import MemoryTree, StoreClient
from sim.loop import ProcessLoop
from sim.network import RETRANSMIT_S, Network, fail, settle
from sim.releases import Release

T = TypeVar("T")

HOST = "zk"
LOOK_S = 0.2
"""How often silent sessions and lost connections are checked."""
RECONNECT_S = 0.01
LOST_AFTER = 0.6
"""A client that gets nothing for this part of its session timeout drops the connection."""


class Tree(MemoryTree):
    """The tree of nodes, which reports changes to the world."""

    def __init__(self) -> None:
        super().__init__()
        self.on_change: Callable[[set[str]], None] = lambda changed: None

    def _notify(self, changed: set[str]) -> None:
        self.on_change(changed)
        super()._notify(changed)


class Ensemble:
    """The server side."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.tree = Tree()
        self.clients: list[StoreDouble] = []
        network.scheduler.later(LOOK_S, self._look)

    def connect(self, loop: ProcessLoop, session_timeout_s: float, release: Release) -> StoreDouble:
        """A new client with a session."""
        client = StoreDouble(self, loop, session_timeout_s, release)
        self.clients.append(client)
        return client

    def end_session(self, session_id: int) -> None:
        """End a session by timeout, or by a client with its password."""
        self.tree.end_session(session_id)

    def is_alive(self, session_id: int) -> bool:
        """Whether the session exists."""
        return self.tree.has_session(session_id)

    def _look(self) -> None:
        """Expire sessions of silent clients; have clients notice lost and mended connections."""
        now = self.network.scheduler.now
        for client in list(self.clients):
            if client.can_talk():
                client.heard_at = now
                client.reconnect()
            elif now - client.heard_at >= client.session_timeout_s:
                if self.is_alive(client.session_id):
                    self.end_session(client.session_id)
                if client.is_over:
                    self.clients.remove(client)
            elif now - client.heard_at >= client.session_timeout_s * LOST_AFTER:
                client.drop()
        self.network.scheduler.later(LOOK_S, self._look)


class _Way:
    """One direction of a client's connection: in order, and late after a cut of the link."""

    def __init__(self, client: StoreDouble, source: str, target: str) -> None:
        self._client = client
        self._source = source
        self._target = target
        self._on_way: deque[tuple[float, int, Callable[[], object]]] = deque()

    def send(self, work: Callable[[], object]) -> None:
        """Run `work` on the other side."""
        network, on_way = self._client.network, self._on_way
        when = network.scheduler.now + network.delay(self._source, self._target)
        if network.is_lost():
            when += RETRANSMIT_S
        if on_way:
            when = max(when, on_way[-1][0])
        on_way.append((when, self._client.connections, work))
        if len(on_way) == 1:
            network.scheduler.at(when, self._arrive)

    def _arrive(self) -> None:
        client, on_way, scheduler = self._client, self._on_way, self._client.network.scheduler
        while on_way and on_way[0][0] <= scheduler.now:
            if on_way[0][1] == client.connections:
                if not client.can_talk():
                    scheduler.later(RETRANSMIT_S, self._arrive)
                    return
                on_way[0][2]()
            on_way.popleft()
        if on_way:
            scheduler.at(on_way[0][0], self._arrive)


class StoreDouble(StoreClient):
    """`headwater_broker.app.environment.Store` of one process."""

    def __init__(
        self, ensemble: Ensemble, loop: ProcessLoop, session_timeout_s: float, release: Release
    ) -> None:
        super().__init__()
        self.loop = loop
        self.release = release
        self.session_timeout_s = session_timeout_s
        self.heard_at = ensemble.network.scheduler.now
        self.is_over = False
        """Whether its process is gone or has closed it."""
        self.network = ensemble.network
        self._ensemble = ensemble
        self._tree = ensemble.tree
        self.session_id = self._tree.join(self)
        self.connections = 0
        """The number of connections so far: data on older ones is lost."""
        self._waiting: list[asyncio.Future[Any]] = []
        self._there = _Way(self, loop.host, HOST)
        self._back = _Way(self, HOST, loop.host)

    # -- the port

    async def close(self) -> None:
        """End the session. As with ZooKeeper's client it is no error if it has ended already, or if
        the server is unreachable."""
        self._forget_all()
        if self._state is SessionState.CONNECTED:
            with contextlib.suppress(SessionExpiredError, ConnectionLostError):
                await self._ask(lambda: self._ensemble.end_session(self.session_id))
        self.is_over = True

    async def get(self, path: str) -> Node:
        return self.release.found(await self._ask(lambda: self._tree.get(path)))

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        rows = await self._ask(lambda: [self._tree.find(path) for path in paths])
        return [None if row is None else self.release.found(row) for row in rows]

    async def children(self, path: str) -> list[str]:
        return await self._ask(lambda: self._tree.children(path))

    async def multi(self, operations: Sequence[Operation]) -> list[str | Node | None]:
        written = self.release.stored(operations)
        rows = await self._ask(lambda: self._tree.apply(written, self.session_id))
        return [self.release.found(row) if isinstance(row, Node) else row for row in rows]

    async def ensure_path(self, path: str) -> None:
        await self._ask(lambda: self._tree.ensure_path(path, self.session_id))

    # -- requests and replies, in order

    async def _ask(self, work: Callable[[], T]) -> T:
        answer: asyncio.Future[T] = self.loop.create_future()
        if self._state is not SessionState.CONNECTED:
            await asyncio.sleep(RECONNECT_S)
            raise ConnectionLostError("not connected")
        self._waiting.append(answer)
        session_id = self.session_id

        def arrive() -> None:
            if not self._ensemble.is_alive(session_id):
                self._return(lambda: fail(answer, SessionExpiredError("expired")))
                return
            try:
                result = work()
            except StoreError as error:
                refused = error
                self._return(lambda: fail(answer, refused))
            else:
                self._return(lambda: settle(answer, result))

        self._there.send(arrive)
        try:
            return await answer
        finally:
            if answer in self._waiting:
                self._waiting.remove(answer)

    def _return(self, work: Callable[[], object]) -> None:
        self._back.send(lambda: self.loop.call_soon(work))

    def changed(self, paths: set[str]) -> None:
        """Called by the tree when nodes changed."""
        for path in sorted(paths & self._watches.keys()):
            self._return(lambda path=path: self._fire(path))

    # -- the session

    @property
    def is_connected(self) -> bool:
        """Whether its process thinks that it has a connection."""
        return self._state is SessionState.CONNECTED

    def can_talk(self) -> bool:
        """Whether client and server reach each other. A stopped process sends no heartbeat."""
        network, loop = self.network, self.loop
        if self.is_over or loop.is_dead or loop.paused_until > network.scheduler.now:
            return False
        return network.passes(loop.host, HOST) and network.passes(HOST, loop.host)

    def drop(self) -> None:
        """Lose the connection: calls in flight have an unknown outcome."""
        if self._state is not SessionState.CONNECTED or self.loop.is_dead:
            return
        self.connections += 1
        self.loop.call_soon(self._dropped)

    def _dropped(self) -> None:
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            fail(answer, ConnectionLostError("the connection was lost"))
        self._tell(SessionState.SUSPENDED)

    def reconnect(self) -> None:
        """The server is reachable: reconnect, if the session still exists."""
        if not self._ensemble.is_alive(self.session_id):
            self.connections += 1
            self.session_id = self._tree.join(self)
            self.loop.call_soon(self._renewed)
        elif self._state is SessionState.SUSPENDED:
            self.connections += 1
            self.loop.call_soon(self._resumed)

    def _renewed(self) -> None:
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            fail(answer, SessionExpiredError("the session expired"))
        self._tell(SessionState.EXPIRED)
        self.loop.call_soon(self._resumed)

    def _resumed(self) -> None:
        self._tell(SessionState.CONNECTED)
        self._fire_all()
