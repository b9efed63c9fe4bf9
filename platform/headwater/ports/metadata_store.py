"""The metadata store as a port: a tree of small versioned nodes with sessions and watches.

Real: `headwater_broker.metadata.store_zk.ZooKeeperStore` (the only kazoo user of the broker);
double: `headwater.testing.memory_store.MemoryStore`. All methods run on the broker's loop; an
adapter hops from its own threads. Semantics are ZooKeeper's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from headwater.errors import HeadwaterError


class StoreError(HeadwaterError):
    """Root of the store's errors."""


class NoNodeError(StoreError):
    """The path does not exist."""


class NodeExistsError(StoreError):
    """The path exists already."""


class BadVersionError(StoreError):
    """A conditional operation met another version."""


class NotEmptyError(StoreError):
    """A node with children cannot be deleted."""


class ConnectionLostError(StoreError):
    """The outcome is unknown: read again; the own value there means success."""


class SessionExpiredError(StoreError):
    """The session is gone, and its ephemeral nodes with it: rebuild everything."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node as read: `version` rises by one per set; `czxid` is the id of its creation."""

    data: bytes
    version: int
    czxid: int
    ephemeral_owner: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node; parents must exist unless `parents` is set (outside multi only)."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replace a node's data when its version is `version` (-1: any)."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node when its version is `version` (-1: any)."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """Hold only when the node's version is `version`."""

    path: str
    version: int


Operation = Create | Set | Delete | Check


class SessionState(Enum):
    """What the store tells its owner about the session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class SessionCredentials:
    """What a supervisor needs to close this session after its owner's death."""

    session_id: int
    password: bytes


class MetadataStore(Protocol):
    """The tree. Every method but `watch` and `session` may raise any StoreError."""

    async def get(self, path: str) -> Node:
        """The node at `path`. Raises NoNodeError."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes at these paths, None where there is none. Of any number: in few requests,
        so not all of one moment."""
        ...

    async def children(self, path: str) -> list[str]:
        """Sorted child names. Raises NoNodeError."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[str | Node | None]:
        """All or nothing. Per operation: the created path, the set node, or None.

        Raises the error of the operation that failed.
        """
        ...

    async def ensure_path(self, path: str) -> None:
        """Create `path` and its parents, empty and persistent, where absent."""
        ...

    def watch(self, path: str, notify: Callable[[str], None]) -> Callable[[], None]:
        """Call `notify(path)` on the loop after any change of the node or its child list.

        Persistent; also fires after a reconnect. Returns the function that ends it.
        """
        ...

    def session(self) -> SessionCredentials:
        """The current session. Raises SessionExpiredError when there is none."""
        ...

    def on_session(self, notify: Callable[[SessionState], None]) -> None:
        """Call `notify` on the loop at every change of the session's state."""
        ...
