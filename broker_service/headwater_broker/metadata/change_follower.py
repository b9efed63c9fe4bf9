"""Follows change nodes in ZooKeeper (Kafka's `ZkNodeChangeNotificationListener`).

Whoever writes ACLs or tokens adds a node to a folder, and every broker reads again what it names.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from headwater.ports.metadata_store import MetadataStore, SessionState, StoreError

logger = logging.getLogger(__name__)


class ChangeFollower:
    """Reads at the start, after each change, and all after a reconnect or a failure."""

    def __init__(
        self,
        store: MetadataStore,
        folders: Sequence[str],
        read: Callable[[], Awaitable[None]],
        *,
        name: str,
        retry_s: float,
    ) -> None:
        """`read` takes what has changed, or everything when `reads_all` is set, which it clears."""
        self.reads_all = True
        self._store = store
        self._folders = folders
        self._read = read
        self._name = name
        self._retry_s = retry_s
        self._wake = asyncio.Event()
        self._ends: list[Callable[[], None]] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Watch the folders, read once, then follow. Raises StoreError."""
        self._ends = [self._store.watch(f, lambda _path: self._wake.set()) for f in self._folders]
        self._store.on_session(self._session_changed)
        await self._read()
        self._task = asyncio.get_running_loop().create_task(self._follow(), name=self._name)

    async def close(self) -> None:
        """Follow no more."""
        for end in self._ends:
            end()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            self._read_all_soon()

    def _read_all_soon(self) -> None:
        self.reads_all = True
        self._wake.set()

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._read()
                continue
            except StoreError as error:
                logger.warning("%s cannot be read, trying again: %s", self._name, error)
            except Exception:  # what was read stays; the next attempt may go well
                logger.exception("%s cannot be followed, trying again", self._name)
            self._read_all_soon()
            await asyncio.sleep(self._retry_s)
