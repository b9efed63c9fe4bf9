"""The metadata store as a port, with ZooKeeper's semantics: versioned nodes, sessions, watches.

Real: `headwater_broker.metadata.store_zk.ZooKeeperStore`; double:
`headwater.testing.memory_store.MemoryStore`. All methods and callbacks run on the broker's loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from headwater.errors import HeadwaterError


class StoreError(HeadwaterError):
    """Base of the store's errors."""


class NoNodeError(StoreError):
    """The path does not exist."""


class NodeExistsError(StoreError):
    """The path exists already."""


class BadVersionError(StoreError):
    """The node has another version than the operation requires."""


class NotEmptyError(StoreError):
    """A node with children cannot be deleted."""


class NotAuthorizedError(StoreError):
    """The node belongs to other credentials than those of this process."""


class ConnectionLostError(StoreError):
    """The connection was lost and the outcome is unknown: read the nodes again. The written value
    there means success."""


class SessionExpiredError(StoreError):
    """The session is gone, and its ephemeral nodes with it."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node. `version` rises by one with each set; `czxid` is the transaction id of its
    creation."""

    data: bytes
    version: int
    czxid: int
    ephemeral_owner: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node. Its parent must exist."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Replace a node's data if its version is `version` (-1: any)."""

    path: str
    data: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node if its version is `version` (-1: any)."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """Fail the multi unless the node's version is `version`."""

    path: str
    version: int


Operation = Create | Set | Delete | Check


class SessionState(Enum):
    """State of the session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class SessionCredentials:
    """Id and password of a session: another process can close it after its owner's death."""

    session_id: int
    password: bytes


class MetadataStore(Protocol):
    """The store. Every method but `watch`, `session` and `on_session` may raise any StoreError."""

    async def get(self, path: str) -> Node:
        """The node at `path`. Raises NoNodeError."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[Node | None]:
        """The nodes at these paths, None where there is none. Many paths take several requests, so
        the nodes may be of different moments."""
        ...

    async def children(self, path: str) -> list[str]:
        """Sorted child names. Raises NoNodeError."""
        ...

    async def multi(self, operations: Sequence[Operation]) -> list[str | Node | None]:
        """Apply all operations or none. Per operation: the created path, the set node, or None.

        Raises the error of the operation that failed.
        """
        ...

    async def ensure_path(self, path: str) -> None:
        """Create `path` and its parents, empty and persistent, where they do not exist."""
        ...

    def watch(self, path: str, notify: Callable[[str], None]) -> Callable[[], None]:
        """Call `notify(path)` on the loop after any change of the node or its child list.

        The watch stays, and also fires after a reconnect. Returns the function that removes it.
        """
        ...

    def session(self) -> SessionCredentials:
        """The current session. Raises SessionExpiredError when there is none."""
        ...

    def on_session(self, notify: Callable[[SessionState], None]) -> None:
        """Call `notify` on the loop at every change of the session's state."""
        ...
