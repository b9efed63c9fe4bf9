"""ZooKeeper as its clients see it: sessions that end while nobody hears, replies that are lost.

`Ensemble` is the server side: the tree, the sessions and when each was last heard of. `StoreDouble`
is one client. Both ways are in order, as ZooKeeper promises: requests arrive as they were sent, and
a client hears of a change before it reads what came after it.
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
"""How often silent sessions and lost connections are looked for."""
RECONNECT_S = 0.01
LOST_AFTER = 0.6
"""A client that hears nothing for this part of its session's time drops the connection."""


class Tree(MemoryTree):
    """The nodes; tells who watches the world what changed."""

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
        """A client with a session."""
        client = StoreDouble(self, loop, session_timeout_s, release)
        self.clients.append(client)
        return client

    def end_session(self, session_id: int) -> None:
        """By its time, or by whoever has its password."""
        self.tree.end_session(session_id)

    def is_alive(self, session_id: int) -> bool:
        """Does the session exist?"""
        return self.tree.has_session(session_id)

    def _look(self) -> None:
        """Sessions of silent clients end; clients notice lost and mended connections."""
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
    """One direction of a client's connection: in order, late when the link was cut meanwhile."""

    def __init__(self, client: StoreDouble, source: str, target: str) -> None:
        self._client = client
        self._source = source
        self._target = target
        self._on_way: deque[tuple[float, int, Callable[[], object]]] = deque()

    def send(self, work: Callable[[], object]) -> None:
        """Do `work` on the other side."""
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
        """Its process is gone, or closed it."""
        self.network = ensemble.network
        self._ensemble = ensemble
        self._tree = ensemble.tree
        self.session_id = self._tree.join(self)
        self.connections = 0
        """Counts connections: what was sent over an older one is lost."""
        self._waiting: list[asyncio.Future[Any]] = []
        self._there = _Way(self, loop.host, HOST)
        self._back = _Way(self, HOST, loop.host)

    # -- the port

    async def close(self) -> None:
        """End the session; as with ZooKeeper's client it is no error when it has ended already, or
        when nobody can be told."""
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

    # -- requests, there and back in order

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
        """From the tree: somebody changed these."""
        for path in sorted(paths & self._watches.keys()):
            self._return(lambda path=path: self._fire(path))

    # -- the session's fate

    def can_talk(self) -> bool:
        """Do both hear of each other now? A process that stands still sends no heartbeat."""
        network, loop = self.network, self.loop
        if self.is_over or loop.is_dead or loop.paused_until > network.scheduler.now:
            return False
        return network.passes(loop.host, HOST) and network.passes(HOST, loop.host)

    def drop(self) -> None:
        """The connection is lost: whatever was under way has an unknown outcome."""
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
        """The server can be reached: is the session still there?"""
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
