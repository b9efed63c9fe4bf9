"""A copy of some trees of a cluster's ZooKeeper, kept up to date by watches instead of polls.

A lost connection loses watches: then the whole copy is read again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kazoo.exceptions import KazooException, NoAuthError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from headwater.local.zk_client import NO_SECURITY, ZooKeeperSecurity, kazoo_client
from headwater.local.zk_nodes import (
    CONNECT_TIMEOUT_S,
    SESSION_TIMEOUT_S,
    Znode,
    ZooKeeperError,
)


class ZooKeeperMirror:
    """Reports the changed nodes of trees. One thread at a time."""

    def __init__(
        self,
        servers: str,
        roots: Mapping[str, int],
        security: ZooKeeperSecurity = NO_SECURITY,
        connect: Callable[..., Any] = kazoo_client,
    ) -> None:
        """`roots`: path -> levels of children to follow. `servers`: `host:port,.../chroot`.
        `connect` is for tests."""
        hosts, slash, chroot = servers.partition("/")
        self._servers, self._prefix = servers, slash + chroot
        self._roots = dict(roots)
        self._client = connect(hosts, security, timeout=SESSION_TIMEOUT_S)
        self._started = False
        self._lock = threading.Lock()
        self._dirty: set[str] = set()
        self._is_stale = True
        """The whole copy must be read: no watch is left."""
        self._known: set[str] = set()
        self.unreadable: set[str] = set()
        """Nodes that belong to other credentials."""

    def close(self) -> None:
        """End the session."""
        self._client.stop()
        self._client.close()

    def changed(self) -> dict[str, Znode | None]:
        """The nodes that changed since the last call, None for one that is gone; at first, and
        after a lost connection, every node. Raises ZooKeeperError; the next call continues."""
        try:
            if not self._started:
                self._client.start(CONNECT_TIMEOUT_S)
                self._started = True
            with self._lock:
                dirty, self._dirty = self._dirty, set()
                is_stale, self._is_stale = self._is_stale, False
            try:
                return self._read_all() if is_stale else self._read(dirty)
            except BaseException:
                with self._lock:
                    self._dirty |= dirty
                    self._is_stale = self._is_stale or is_stale
                raise
        except (KazooException, KazooTimeoutError, OSError) as error:
            raise ZooKeeperError(f"ZooKeeper at {self._servers}: {error!r}") from error

    def _read_all(self) -> dict[str, Znode | None]:
        former, self._known = self._known, set()
        self.unreadable.clear()
        try:
            found = self._read(self._roots)
        except BaseException:
            self._known |= former
            raise
        return {**dict.fromkeys(former - self._known), **found}

    def _read(self, paths: Iterable[str]) -> dict[str, Znode | None]:
        """Read these nodes and, below them, children that are new; all with watches."""
        found: dict[str, Znode | None] = {}
        wanted = set(paths)
        while wanted:
            asked = [(path, self._ask(path)) for path in sorted(wanted)]
            wanted = set()
            for path, (data, children) in asked:
                found[path] = self._node(path, data)
                if children is not None:
                    names = self._names(path, children)
                    below = {f"{path}/{name}" for name in names}
                    wanted |= {p for p in below if p not in self._known and p not in found}
        return found

    def _ask(self, path: str) -> tuple[Any, Any]:
        full = self._prefix + path
        data = self._client.get_async(full, watch=self._marked)
        is_parent = self._levels_below(path) > 0
        return data, self._client.get_children_async(full, self._marked) if is_parent else None

    def _node(self, path: str, asked: Any) -> Znode | None:
        try:
            data, stat = asked.get()
        except NoNodeError:
            self._known.discard(path)
            is_root = path in self._roots
            if is_root and self._client.exists(self._prefix + path, watch=self._marked):
                with self._lock:
                    self._dirty.add(path)  # it was created just now
            return None
        except NoAuthError:
            self.unreadable.add(path)
            return None
        self._known.add(path)
        return Znode(data or b"", stat.version, stat.mzxid)

    def _names(self, path: str, asked: Any) -> list[str]:
        try:
            return list(asked.get())
        except NoNodeError:
            return []
        except NoAuthError:
            self.unreadable.add(path)
            return []

    def _levels_below(self, path: str) -> int:
        root = next(r for r in self._roots if path == r or path.startswith(f"{r}/"))
        return self._roots[root] - path.removeprefix(root).count("/")

    def _marked(self, event: Any) -> None:
        """A watch fired, in kazoo's thread. Events without a path end all watches."""
        with self._lock:
            if event.path:
                self._dirty.add(event.path.removeprefix(self._prefix))
            else:
                self._is_stale = True
