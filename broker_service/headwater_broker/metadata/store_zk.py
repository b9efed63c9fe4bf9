"""The metadata store on ZooKeeper, by kazoo.

kazoo runs threads of its own. Callbacks here only post to the broker's loop, so
`DirectCallbackHandler` may run them on the connection's thread. kazoo's `transaction().commit()`
returns errors of its operations instead of raising them; `multi` is the one place that raises them.
ZooKeeper's watches fire once. Each is set again before its owner is notified, so that no change
after the owner's next read is missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kazoo import exceptions as kx
from kazoo.client import KazooClient
from kazoo.protocol.states import KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry

from headwater.errors import UsageError
from headwater.local.zk_client import (
    NO_SECURITY,
    PUBLIC_ACL,
    SECRET_ACL,
    ZooKeeperSecurity,
    kazoo_client,
)
from headwater.ports.metadata_store import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    Node,
    NodeExistsError,
    NoNodeError,
    NotAuthorizedError,
    NotEmptyError,
    Operation,
    SessionCredentials,
    SessionExpiredError,
    SessionState,
    Set,
    StoreError,
)
from headwater_broker.metadata.zk_handler import DirectCallbackHandler
from headwater_broker.metadata.zk_multi_read import MultiRead
from headwater_broker.metadata.znode_acls import SECURE_ROOTS, ZnodeAcl, ZnodeAcls

RECONNECT_DELAY_S = 0.05
RECONNECT_DELAY_MAX_S = 0.5
FIRE_PAUSE_S = 0.05
FIRE_PAUSE_PER_CHILD_S = 0.0005
FIRE_PAUSE_MAX_S = 1.0
"""Pause between two notifications of one path. Setting a watch again lists the children, and the
owner lists them once more: a thousand topics created one by one would be listed a thousand times.
So the pause grows with the number of children, and listing takes about a hundredth of the time
whatever their number. The first notification after a pause comes at once."""

SECURE_AT_ONCE = 200
"""Nodes whose ACLs are read and set at the same time."""
READ_ONLY = 1
"""ZooKeeper's permission to read, alone."""
READS_MAX = 500
"""Nodes per request. Its reply, some 150 KB for partitions, delays the replies behind it."""

_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.EXPIRED,
}

logger = logging.getLogger(__name__)


def split_chroot(connect: str) -> tuple[str, str]:
    """`host:2181,host2:2181/a/b` -> (hosts, `/a/b`). Raises UsageError."""
    hosts, slash, rest = connect.partition("/")
    chroot = slash + rest.rstrip("/") if rest.strip("/") else ""
    if not hosts.strip() or "//" in chroot:
        raise UsageError(f"zookeeper.connect {connect!r}: use host:port[,host:port...][/chroot]")
    return hosts.strip(), chroot


def fire_pause_s(children: int) -> float:
    """The pause between two notifications of a path with so many children."""
    return min(FIRE_PAUSE_S + FIRE_PAUSE_PER_CHILD_S * children, FIRE_PAUSE_MAX_S)


def _client(hosts: str, session_timeout_ms: int, security: ZooKeeperSecurity) -> KazooClient:
    retry = KazooRetry(
        max_tries=-1, delay=RECONNECT_DELAY_S, backoff=2, max_delay=RECONNECT_DELAY_MAX_S
    )
    return kazoo_client(
        hosts,
        security,
        timeout=session_timeout_ms / 1000,
        connection_retry=retry,
        handler=DirectCallbackHandler(security.tls),
        logger=logging.getLogger("kazoo"),
    )


class ZooKeeperStore:
    """`headwater.ports.metadata_store.MetadataStore` on a ZooKeeper ensemble (3.5 or later)."""

    def __init__(
        self,
        connect: str,
        session_timeout_ms: int,
        client: KazooClient | None = None,
        security: ZooKeeperSecurity = NO_SECURITY,
    ) -> None:
        """`client`: instead of one for these servers."""
        self._acls = ZnodeAcls(is_authenticated=bool(security.digest), set_acl=security.set_acl)
        self._hosts, self._chroot = split_chroot(connect)
        self._loop = asyncio.get_running_loop()
        self._client = client or _client(self._hosts, session_timeout_ms, security)
        self._watches: dict[str, list[Callable[[str], None]]] = {}
        self._armed: dict[tuple[str, str], bool] = {}
        self._next_fire: dict[str, float] = {}
        self._sizes: dict[str, int] = {}
        """The number of children of watched paths, when the watch was last set."""
        self._due: set[str] = set()
        self._listeners: list[Callable[[SessionState], None]] = []
        self._state = SessionState.SUSPENDED
        self._first: asyncio.Future[None] = self._loop.create_future()
        self._is_closed = False
        self._reads_many = True

    async def start(self, timeout_ms: int = 15_000) -> None:
        """Connect, and create the chroot. Raises UsageError if no server answers in time."""
        self._client.add_listener(self._from_kazoo)
        self._client.start_async()
        try:
            await asyncio.wait_for(asyncio.shield(self._first), timeout_ms / 1000)
        except TimeoutError:
            await self.close()
            raise UsageError(
                f"no ZooKeeper answers at {self._hosts} within {timeout_ms} ms: "
                "is it running, and is zookeeper.connect right?"
            ) from None
        if self._chroot:
            await self.ensure_path("")

    async def close(self) -> None:
        """Close the session: its ephemeral nodes go at once."""
        self._is_closed = True
        await asyncio.to_thread(self._stop)

    def _stop(self) -> None:
        self._client.stop()
        self._client.close()

    async def get(self, path: str) -> Node:
        """The node at `path`. Raises NoNodeError."""
        data, stat = await self._call(self._client.get_async(self._full(path)), path)
        return _node(data, stat)

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes at these paths, None where there is none: hundreds per request.

        A server before ZooKeeper 3.6 does not know that request; then each node takes one.
        """
        if not self._reads_many:
            return list(await asyncio.gather(*(self._maybe(path) for path in paths)))
        chunks = [paths[at : at + READS_MAX] for at in range(0, len(paths), READS_MAX)]
        try:
            rows = await asyncio.gather(*(self._read(chunk) for chunk in chunks))
        except StoreError as error:
            if not isinstance(error.__cause__, kx.UnimplementedError):
                raise
            self._reads_many = False
            return await self.get_many(paths)
        return [row for chunk in rows for row in chunk]

    async def _read(self, paths: Sequence[str]) -> list[Node | None]:
        pending = self._client.handler.async_result()
        self._client._call(MultiRead(tuple(map(self._full, paths))), pending)
        found = await self._call(pending, f"{len(paths)} reads")
        return [_found(row, path) for row, path in zip(found, paths, strict=True)]

    async def _maybe(self, path: str) -> Node | None:
        try:
            return await self.get(path)
        except NoNodeError:
            return None

    async def children(self, path: str) -> list[str]:
        """Sorted child names. Raises NoNodeError."""
        return sorted(await self._call(self._client.get_children_async(self._full(path)), path))

    async def multi(self, operations: Sequence[Operation]) -> list[str | Node | None]:
        """Apply all operations or none; raises the error of the operation that failed."""
        transaction = self._client.transaction()
        for operation in operations:
            self._add(transaction, operation)
        results = await self._call(transaction.commit_async(), f"{len(operations)} operations")
        _raise_first(operations, results)
        return [self._result(op, result) for op, result in zip(operations, results, strict=True)]

    async def ensure_path(self, path: str) -> None:
        """Create `path` and its parents where absent."""
        parts = [part for part in path.split("/") if part]
        for count in range(bool(parts), len(parts) + 1):  # each with an ACL of its own
            at = "/".join(("", *parts[:count]))
            acl = self._acl(at)
            await self._call(self._client.ensure_path_async(self._full(at), acl), at)

    async def secure(self) -> int:
        """Give the cluster's nodes the ACLs that they would be created with; how many changed.

        Raises NotAuthorizedError when some belong to other credentials.
        """
        changed, below = int(await self._secure_root()), list(SECURE_ROOTS)
        while below:
            chunk, below = below[:SECURE_AT_ONCE], below[SECURE_AT_ONCE:]
            found = await asyncio.gather(*map(self._secure, chunk))
            changed += sum(is_changed for is_changed, _ in found)
            below += [path for _, children in found for path in children]
        return changed

    async def _secure_root(self) -> bool:
        """Secure the chroot: who may delete its children may put others in their place.

        A server's own root may hold nodes of others. A local cluster's manager secures its own.
        """
        root = self._chroot or "/"
        present, _ = await self._call(self._client.get_acls_async(root), root)
        if _is_owned(present):
            return False
        if self._chroot:
            await self._call(self._client.set_acls_async(root, list(PUBLIC_ACL)), root)
            return True
        logger.warning(
            "zookeeper.set.acl: everybody may delete and create nodes below ZooKeeper's root, "
            "/controller too: set an ACL on /, or give zookeeper.connect a chroot"
        )
        return False

    async def _secure(self, path: str) -> tuple[bool, list[str]]:
        """Secure one node: whether its ACL changed, and the paths of its children."""
        full, wanted = self._full(path), self._acl(path)
        try:
            present, _ = await self._call(self._client.get_acls_async(full), path)
            is_owned = _is_owned(present)
            is_shut = not any(row.id.scheme == "world" for row in present)
            is_right = is_owned and is_shut is (self._acls.of(path) is ZnodeAcl.SECRET)
            if not is_right:
                await self._call(self._client.set_acls_async(full, wanted), path)
            names = await self._call(self._client.get_children_async(full), path)
        except NoNodeError:
            return False, []
        return not is_right, [f"{path}/{name}" for name in names]

    def _acl(self, path: str) -> list[Any] | None:
        match self._acls.of(path):
            case ZnodeAcl.OPEN:
                return None
            case ZnodeAcl.PUBLIC:
                return list(PUBLIC_ACL)
            case ZnodeAcl.SECRET:
                return list(SECRET_ACL)

    def watch(self, path: str, notify: Callable[[str], None]) -> Callable[[], None]:
        """Call `notify(path)` after any change of the node or its children."""
        self._watches.setdefault(path, []).append(notify)
        self._arm(path)

        def end() -> None:
            rows = self._watches.get(path, [])
            if notify in rows:
                rows.remove(notify)
            if not rows:
                self._watches.pop(path, None)

        return end

    def session(self) -> SessionCredentials:
        """The current session. Raises SessionExpiredError."""
        client_id = self._client.client_id
        if self._state is SessionState.EXPIRED or client_id is None:
            raise SessionExpiredError("there is no session")
        return SessionCredentials(session_id=client_id[0], password=client_id[1])

    def on_session(self, notify: Callable[[SessionState], None]) -> None:
        """Call `notify` at every change of the session's state."""
        self._listeners.append(notify)

    def _full(self, path: str) -> str:
        return self._chroot + path

    def _add(self, transaction: Any, operation: Operation) -> None:
        path = self._full(operation.path)
        match operation:
            case Create():
                transaction.create(
                    path,
                    operation.data,
                    acl=self._acl(operation.path),
                    ephemeral=operation.ephemeral,
                    sequence=operation.sequential,
                )
            case Set():
                transaction.set_data(path, operation.data, operation.version)
            case Delete():
                transaction.delete(path, operation.version)
            case Check():
                transaction.check(path, operation.version)

    def _result(self, operation: Operation, result: Any) -> str | Node | None:
        if isinstance(operation, Create):
            return str(result)[len(self._chroot) :]
        if isinstance(operation, Set) and isinstance(result, ZnodeStat):
            return _node(operation.data, result)
        return None

    async def _call(self, pending: Any, what: str) -> Any:
        """Await a kazoo result on the loop. kazoo's errors become those of the port."""
        done: asyncio.Future[None] = self._loop.create_future()

        def settle() -> None:
            if not done.done():
                done.set_result(None)

        pending.rawlink(lambda _result: self._post(settle))
        await done
        try:
            return pending.get(block=False)
        except Exception as error:
            raise _translated(error, what) from error

    def _post(self, call: Callable[..., None], *args: Any) -> None:
        """Call from a kazoo thread on the loop."""
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            # The loop is closed: the process ends, and nobody awaits the result.
            return

    def _from_kazoo(self, state: str) -> None:
        self._post(self._on_state, _STATES[state])

    def _on_state(self, state: SessionState) -> None:
        if state is self._state and self._first.done():
            return
        self._state = state
        logger.info("ZooKeeper session: %s", state.value)
        if state is SessionState.CONNECTED and not self._first.done():
            self._first.set_result(None)
        for notify in list(self._listeners):
            notify(state)
        if state is SessionState.CONNECTED:
            # Events may have been missed: set every watch again, and notify the owners.
            self._armed.clear()
            for path in list(self._watches):
                self._fire(path)

    def _arm(self, path: str) -> None:
        """Set the missing ones of the two one-shot watches: on the node, on its child list."""
        if self._is_closed or self._state is not SessionState.CONNECTED:
            return
        if not self._armed.get((path, "node")):
            self._armed[path, "node"] = True
            self._client.exists_async(self._full(path), watch=self._watcher(path, "node"))
        if not self._armed.get((path, "children")):
            self._armed[path, "children"] = True
            pending = self._client.get_children_async(
                self._full(path), watch=self._watcher(path, "children")
            )
            pending.rawlink(lambda result: self._post(self._on_children, path, result))

    def _on_children(self, path: str, result: Any) -> None:
        # Without a node no child watch is set: the watch on the node fires when it is created.
        if result.successful():
            self._sizes[path] = len(result.value)
        else:
            self._armed.pop((path, "children"), None)
            self._sizes.pop(path, None)

    def _watcher(self, path: str, kind: str) -> Callable[[WatchedEvent], None]:
        def on_event(_event: WatchedEvent) -> None:
            self._post(self._on_event, path, kind)

        return on_event

    def _on_event(self, path: str, kind: str) -> None:
        self._armed.pop((path, kind), None)
        if path in self._due:
            return
        now = self._loop.time()
        wait = self._next_fire.get(path, now) - now
        if wait > 0:
            self._due.add(path)
            self._loop.call_later(wait, self._fire, path)
        else:
            self._fire(path)

    def _fire(self, path: str) -> None:
        self._due.discard(path)
        self._next_fire[path] = self._loop.time() + fire_pause_s(self._sizes.get(path, 0))
        if path not in self._watches:
            return
        self._arm(path)
        for notify in list(self._watches.get(path, ())):
            notify(path)


def _found(row: tuple[bytes, ZnodeStat] | Exception, path: str) -> Node | None:
    if isinstance(row, kx.NoNodeError):
        return None
    if isinstance(row, Exception):
        raise _translated(row, path) from row
    return _node(*row)


def _is_owned(acls: Iterable[Any]) -> bool:
    """Whether everybody may read the node at most."""
    return all(row.id.scheme != "world" or row.perms == READ_ONLY for row in acls)


def _node(data: bytes, stat: ZnodeStat) -> Node:
    return Node(
        data=data,
        version=stat.version,
        czxid=stat.czxid,
        ephemeral_owner=stat.ephemeralOwner,
    )


def _raise_first(operations: Sequence[Operation], results: Iterable[Any]) -> None:
    """Raise the error of a failed multi. Results of the other operations only say that they were
    rolled back."""
    rolled_back = (kx.RolledBackError, kx.RuntimeInconsistency)
    other: StoreError | None = None
    for operation, result in zip(operations, results, strict=True):
        if isinstance(result, rolled_back):
            other = other or StoreError(f"multi failed at {operation}")
        elif isinstance(result, Exception):
            raise _translated(result, operation.path) from result
    if other is not None:
        raise other


_TRANSLATION: tuple[tuple[tuple[type[Exception], ...], type[StoreError]], ...] = (
    ((kx.NoNodeError,), NoNodeError),
    ((kx.NodeExistsError,), NodeExistsError),
    ((kx.BadVersionError,), BadVersionError),
    ((kx.NotEmptyError,), NotEmptyError),
    ((kx.NoAuthError,), NotAuthorizedError),
    ((kx.SessionExpiredError, kx.AuthFailedError), SessionExpiredError),
    ((kx.ConnectionLoss, kx.ConnectionClosedError, kx.OperationTimeoutError), ConnectionLostError),
)


def _translated(error: Exception, what: str) -> StoreError:
    for theirs, ours in _TRANSLATION:
        if isinstance(error, theirs):
            return ours(f"{what}: {error!r}")
    return StoreError(f"{what}: {error!r}")
