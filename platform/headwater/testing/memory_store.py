"""Test double of the metadata store: one tree, any number of sessions, faults on demand.

`MemoryTree` is the ensemble, each `MemoryStore` a client session. Its semantics are ZooKeeper's:
`tests/conformance/test_metadata_store.py` runs over both. Faults: `expire` ends a session,
`suspend`/`resume` cut its connection, `lose_next_reply` applies the next multi and loses its reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from headwater.ports.metadata_store import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    SessionCredentials,
    SessionExpiredError,
    SessionState,
    Set,
)


@dataclass(slots=True)
class _Entry:
    node: Node
    children: set[str]
    created: int = 0
    """The number of sequential children created so far."""


REQUEST_BYTES_MAX = 1024 * 1024 - 1
"""Limit on a whole request, as ZooKeeper's `jute.maxbuffer`."""


def _size(operation: Operation) -> int:
    data = operation.data if isinstance(operation, Create | Set) else b""
    return len(operation.path) + len(data)


def _parent(path: str) -> str:
    return path.rsplit("/", 1)[0]


class MemoryTree:
    """The tree of nodes, shared by all sessions."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {"": _Entry(Node(b"", 0, 0, 0), set())}
        self._zxid = 0
        self._next_session = 1
        self._sessions: dict[int, StoreClient] = {}

    def connect(self) -> MemoryStore:
        """A new client session."""
        return MemoryStore(self)

    def paths(self) -> list[str]:
        """All paths, sorted, for assertions."""
        return sorted(path for path in self._entries if path)

    def join(self, store: StoreClient) -> int:
        """Add a session and return its id."""
        session_id = self._next_session
        self._next_session += 1
        self._sessions[session_id] = store
        return session_id

    def end_session(self, session_id: int) -> None:
        """Remove a session and its ephemeral nodes."""
        self._sessions.pop(session_id, None)
        owned = [p for p, e in self._entries.items() if e.node.ephemeral_owner == session_id]
        changed: set[str] = set()
        for path in owned:
            self._zxid += 1
            self._remove(path, changed)
        self._notify(changed)

    def has_session(self, session_id: int) -> bool:
        """Whether this session exists."""
        return session_id in self._sessions

    def close_session(self, credentials: SessionCredentials) -> None:
        """Close a session by its credentials, as a supervisor does after its broker's death."""
        store = self._sessions.get(credentials.session_id)
        if isinstance(store, MemoryStore):
            store.expire()

    def get(self, path: str) -> Node:
        """One node. Raises NoNodeError."""
        return self._entry(path).node

    def find(self, path: str) -> Node | None:
        """One node, or None."""
        try:
            return self.get(path)
        except NoNodeError:
            return None

    def children(self, path: str) -> list[str]:
        """Child names. Raises NoNodeError."""
        return sorted(self._entry(path).children)

    def ensure_path(self, path: str, session_id: int) -> None:
        """Create `path` and its parents where absent."""
        parts = path.strip("/").split("/")
        for count in range(1, len(parts) + 1):
            try:
                self.apply([Create("/" + "/".join(parts[:count]))], session_id)
            except NodeExistsError:
                continue

    def apply(self, operations: Sequence[Operation], session_id: int) -> list[str | Node | None]:
        """Apply all operations or none."""
        before = (self._zxid, dict(self._entries))
        kept = {p: set(e.children) for p, e in self._entries.items()}
        counts = {p: e.created for p, e in self._entries.items()}
        changed: set[str] = set()
        self._zxid += 1
        try:
            results = [self._apply(op, session_id, changed) for op in operations]
        except Exception:
            self._zxid, self._entries = before
            for path, children in kept.items():
                self._entries[path].children = children
                self._entries[path].created = counts[path]
            raise
        self._notify(changed)
        return results

    def _entry(self, path: str) -> _Entry:
        entry = self._entries.get(path)
        if entry is None:
            raise NoNodeError(path)
        return entry

    def _apply(self, operation: Operation, session_id: int, changed: set[str]) -> str | Node | None:
        match operation:
            case Create():
                return self._create(operation, session_id, changed)
            case Set():
                entry = self._versioned(operation.path, operation.version)
                node = replace(entry.node, data=operation.data, version=entry.node.version + 1)
                self._entries[operation.path] = _Entry(node, entry.children, entry.created)
                changed.add(operation.path)
                return node
            case Delete():
                entry = self._versioned(operation.path, operation.version)
                if entry.children:
                    raise NotEmptyError(operation.path)
                self._remove(operation.path, changed)
                return None
            case Check():
                self._versioned(operation.path, operation.version)
                return None

    def _versioned(self, path: str, version: int) -> _Entry:
        entry = self._entry(path)
        if version not in (-1, entry.node.version):
            raise BadVersionError(f"{path}: version {entry.node.version}, not {version}")
        return entry

    def _create(self, operation: Create, session_id: int, changed: set[str]) -> str:
        parent = self._entry(_parent(operation.path))
        path = operation.path
        if operation.sequential:
            path = f"{path}{parent.created:010d}"
            parent.created += 1
        if path in self._entries:
            raise NodeExistsError(path)
        owner = session_id if operation.ephemeral else 0
        self._entries[path] = _Entry(Node(operation.data, 0, self._zxid, owner), set())
        parent.children.add(path.rsplit("/", 1)[1])
        changed.update((path, _parent(path)))
        return path

    def _remove(self, path: str, changed: set[str]) -> None:
        del self._entries[path]
        self._entries[_parent(path)].children.discard(path.rsplit("/", 1)[1])
        changed.update((path, _parent(path)))

    def _notify(self, changed: set[str]) -> None:
        for store in list(self._sessions.values()):
            store.changed(changed)


class StoreClient:
    """The common part of client doubles: session id and state, watches, session listeners."""

    def __init__(self) -> None:
        self.session_id = 0
        self._state = SessionState.CONNECTED
        self._watches: dict[str, list[Callable[[str], None]]] = {}
        self._listeners: list[Callable[[SessionState], None]] = []

    def watch(self, path: str, notify: Callable[[str], None]) -> Callable[[], None]:
        """Call `notify(path)` after any change of the node or its children."""
        rows = self._watches.setdefault(path, [])
        rows.append(notify)

        def end() -> None:
            if notify in rows:
                rows.remove(notify)

        return end

    def session(self) -> SessionCredentials:
        """The current session. Raises SessionExpiredError."""
        if self._state is SessionState.EXPIRED:
            raise SessionExpiredError("there is no session")
        return SessionCredentials(self.session_id, b"double")

    def on_session(self, notify: Callable[[SessionState], None]) -> None:
        """Call `notify` at every change of the session's state."""
        self._listeners.append(notify)

    def changed(self, paths: set[str]) -> None:
        """Called by the tree when nodes at these paths changed."""
        raise NotImplementedError

    def _tell(self, state: SessionState) -> None:
        if state is self._state:
            return
        self._state = state
        for notify in list(self._listeners):
            notify(state)

    def _fire(self, path: str) -> None:
        for notify in list(self._watches.get(path, ())):
            notify(path)

    def _fire_all(self) -> None:
        for path in list(self._watches):
            self._fire(path)

    def _forget_all(self) -> None:
        self._watches.clear()
        self._listeners.clear()


class MemoryStore(StoreClient):
    """`headwater.ports.metadata_store.MetadataStore`: one session on a tree."""

    def __init__(self, tree: MemoryTree) -> None:
        super().__init__()
        self._tree = tree
        self.session_id = tree.join(self)
        self._resumed = asyncio.Event()
        self._resumed.set()
        self._replies_to_lose = 0
        self.multis = 0
        """The number of multis sent, for assertions on batching."""

    async def start(self) -> None:
        """Do nothing: the double is connected from the start."""

    async def secure(self) -> int:
        """No node has ACLs here: none changes."""
        return 0

    async def close(self) -> None:
        """End the session. Later calls fail with ConnectionLostError."""
        self._tree.end_session(self.session_id)
        self._resumed.clear()
        self._forget_all()

    async def get(self, path: str) -> Node:
        """The node at `path`. Raises NoNodeError."""
        await self._reach()
        return self._tree.get(path)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes at these paths, None where there is none."""
        await self._reach()
        return [self._tree.find(path) for path in paths]

    async def children(self, path: str) -> list[str]:
        """Sorted child names. Raises NoNodeError."""
        await self._reach()
        return self._tree.children(path)

    async def multi(self, operations: Sequence[Operation]) -> list[str | Node | None]:
        """Apply all operations or none; raises the error of the operation that failed."""
        await self._reach()
        self.multis += 1
        if sum(_size(operation) for operation in operations) > REQUEST_BYTES_MAX:
            raise ConnectionLostError("the request is too large")
        results = self._tree.apply(operations, self.session_id)
        if self._replies_to_lose:
            self._replies_to_lose -= 1
            raise ConnectionLostError("the reply was lost")
        return results

    async def ensure_path(self, path: str) -> None:
        """Create `path` and its parents where absent."""
        await self._reach()
        self._tree.ensure_path(path, self.session_id)

    def lose_next_reply(self) -> None:
        """Apply the next multi, but raise ConnectionLostError to its caller."""
        self._replies_to_lose += 1

    def expire(self) -> None:
        """Expire the session. The client gets a new one, as with kazoo."""
        self._tree.end_session(self.session_id)
        self._tell(SessionState.EXPIRED)
        self.session_id = self._tree.join(self)
        self._resumed.set()
        self._tell(SessionState.CONNECTED)
        self._fire_all()

    def suspend(self) -> None:
        """Cut the connection: calls fail with ConnectionLostError, and watches do not fire."""
        self._resumed.clear()
        self._tell(SessionState.SUSPENDED)

    def resume(self) -> None:
        """Restore the connection before the session has expired."""
        self._resumed.set()
        self._tell(SessionState.CONNECTED)
        self._fire_all()

    def changed(self, paths: set[str]) -> None:
        """Called by the tree: fire the watches on these paths."""
        if not self._resumed.is_set():
            return
        for path in paths & self._watches.keys():
            self._fire(path)

    async def _reach(self) -> None:
        await asyncio.sleep(0)
        if not self._resumed.is_set():
            raise ConnectionLostError("not connected")

    def _fire(self, path: str) -> None:
        loop = asyncio.get_running_loop()
        for notify in list(self._watches.get(path, ())):
            loop.call_soon(notify, path)
