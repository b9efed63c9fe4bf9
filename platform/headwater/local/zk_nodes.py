"""Reads and writes single nodes of a cluster's ZooKeeper, for tools that run beside no broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from kazoo.exceptions import BadVersionError, KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from headwater.errors import HeadwaterError
from headwater.local.zk_client import (
    NO_SECURITY,
    SECRET_ACL,
    ZooKeeperSecurity,
    kazoo_client,
)

CONNECT_TIMEOUT_S = 30.0
SESSION_TIMEOUT_S = 10.0


class Znode(NamedTuple):
    """A node's data, its version, and the transaction id of its last change."""

    data: bytes
    version: int
    zxid: int


class ZooKeeperError(HeadwaterError):
    """ZooKeeper does not answer, or refuses a request."""


class ZooKeeperNodes:
    """A connection to the nodes of one cluster. Paths are without the chroot."""

    def __init__(self, servers: str, security: ZooKeeperSecurity = NO_SECURITY) -> None:
        """`servers`: `host:port,.../chroot`, which may not exist yet. Raises ZooKeeperError."""
        self.servers = servers
        hosts, slash, chroot = servers.partition("/")
        self._root = slash + chroot
        self._has_acls = security.set_acl
        self._client = kazoo_client(hosts, security, timeout=SESSION_TIMEOUT_S)
        try:
            with self._errors("connecting"):
                self._client.start(CONNECT_TIMEOUT_S)
        except ZooKeeperError:
            self.close()
            raise

    def __enter__(self) -> ZooKeeperNodes:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the session."""
        self._client.stop()
        self._client.close()

    def get(self, path: str) -> Znode | None:
        """The node at `path`; None without one."""
        with self._errors(f"reading {path}"):
            try:
                data, stat = self._client.get(self._root + path)
            except NoNodeError:
                return None
        return Znode(data or b"", stat.version, stat.mzxid)

    def children(self, path: str) -> list[str]:
        """Sorted names of the children; none without the node."""
        with self._errors(f"reading {path}"):
            try:
                return sorted(self._client.get_children(self._root + path))
            except NoNodeError:
                return []

    def put(self, path: str, data: bytes, *, secret: bool = False) -> None:
        """Create the node, with its parents, or replace its data. A `secret` one is for the
        cluster's credentials only, if the cluster uses any."""
        acl = list(SECRET_ACL) if secret and self._has_acls else None
        with self._errors(f"writing {path}"):
            try:
                self._client.create(self._root + path, data, acl=acl, makepath=True)
            except NodeExistsError:
                self._client.set(self._root + path, data)
                if acl:
                    self._client.set_acls(self._root + path, acl)

    def create(self, path: str, data: bytes) -> bool:
        """Create the node, with its parents; False when it exists."""
        with self._errors(f"creating {path}"):
            try:
                self._client.create(self._root + path, data, makepath=True)
            except NodeExistsError:
                return False
        return True

    def update(self, path: str, change: Callable[[bytes], bytes]) -> None:
        """Replace the data of a node by a function of it, which may be called again."""
        with self._errors(f"writing {path}"):
            while True:
                data, stat = self._client.get(self._root + path)
                try:
                    self._client.set(self._root + path, change(data or b""), stat.version)
                    return
                except BadVersionError:
                    continue

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except (KazooException, KazooTimeoutError, OSError) as error:
            raise ZooKeeperError(f"ZooKeeper at {self.servers}: {doing}: {error!r}") from error
