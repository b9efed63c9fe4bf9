"""A broker's copy of the cluster's ACLs, kept equal to ZooKeeper's (Kafka's `AclAuthorizer`).

    store = AclStore(metadata_store, authorizer)
    await store.start()     # all ACLs are loaded: clients may be served
    await store.catch_up()  # as new as this moment

Writers add a sequential change node that names the resource; this reads that resource again. After
a reconnect, and where change nodes are missing, it reads all.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headwater.ports.metadata_store import (
    MetadataStore,
    NoNodeError,
)
from headwater.security.acl import AclBinding
from headwater_broker.metadata import acl_znodes
from headwater_broker.metadata.change_follower import ChangeFollower
from headwater_broker.metadata.znodes import ZnodeError
from headwater_broker.security.standard_authorizer import ResourcePattern, StandardAuthorizer

RETRY_S = 0.2

logger = logging.getLogger(__name__)


async def all_patterns(store: MetadataStore) -> list[ResourcePattern]:
    """Every resource that has a node."""
    found = []
    for root, pattern_type in acl_znodes.ROOTS.items():
        for kind in acl_znodes.TYPES.values():
            try:
                names = await store.children(acl_znodes.type_path(root, kind))
            except NoNodeError:
                continue
            found += [ResourcePattern(kind, acl_znodes.unquoted(n), pattern_type) for n in names]
    return found


class AclStore:
    """Loads ACLs into the authorizer, and follows their changes."""

    def __init__(
        self,
        store: MetadataStore,
        authorizer: StandardAuthorizer,
        *,
        retry_s: float = RETRY_S,
    ) -> None:
        self._store = store
        self.authorizer = authorizer
        self.on_change: list[Callable[[], None]] = []
        """Called after every change of the authorizer's ACLs."""
        self._seen: dict[str, int] = {}
        """By folder of changes: the number of the last one that was followed."""
        self._lock = asyncio.Lock()
        self._follower = ChangeFollower(
            store, acl_znodes.CHANGES, self.catch_up, name="ACLs", retry_s=retry_s
        )

    async def start(self) -> None:
        """Create the folders, load all ACLs, follow their changes. Raises StoreError."""
        there = await self._store.get_many(acl_znodes.PERSISTENT_PATHS)
        for path, node in zip(acl_znodes.PERSISTENT_PATHS, there, strict=True):
            if node is None:
                await self._store.ensure_path(path)
        await self._follower.start()

    async def close(self) -> None:
        """Follow no more."""
        await self._follower.close()

    async def catch_up(self) -> None:
        """Read what has changed. Raises StoreError."""
        async with self._lock:
            # The numbers are read before the ACLs: a change in between is read twice, not missed.
            changes = {folder: await self._numbers(folder) for folder in acl_znodes.CHANGES}
            if self._follower.reads_all or any(
                self._has_gap(f, rows) for f, rows in changes.items()
            ):
                await self._load()
            else:
                await self._read_changed(changes)
            for folder, numbers in changes.items():
                self._seen[folder] = max(numbers, default=self._seen.get(folder, -1))

    def _tell(self) -> None:
        for notify in self.on_change:
            notify()

    async def _numbers(self, folder: str) -> list[int]:
        prefix = acl_znodes.CHANGE_PREFIX
        names = [n.removeprefix(prefix) for n in await self._store.children(folder)]
        return [int(n) for n in names if n.isdigit()]

    def _has_gap(self, folder: str, numbers: list[int]) -> bool:
        """True when changes that were not followed have been removed."""
        seen = self._seen.get(folder, -1)
        fresh = [n for n in numbers if n > seen]
        return len(fresh) != max(numbers, default=seen) - seen

    async def _load(self) -> None:
        self._follower.reads_all = False
        try:
            patterns = await all_patterns(self._store)
            rows = await self._read(patterns)
        except BaseException:
            self._follower.reads_all = True
            raise
        self.authorizer.load(acl for found in rows.values() for acl in found)
        logger.info("loaded the ACLs of %d resources", len(rows))
        self._tell()

    async def _read_changed(self, changes: dict[str, list[int]]) -> None:
        patterns = []
        for folder, numbers in changes.items():
            fresh = [n for n in sorted(numbers) if n > self._seen.get(folder, -1)]
            paths = [f"{folder}/{acl_znodes.CHANGE_PREFIX}{n:010d}" for n in fresh]
            for node in await self._store.get_many(paths) if paths else ():
                try:
                    if node is None:
                        raise ZnodeError(f"{folder}: a change was removed meanwhile")
                    patterns.append(acl_znodes.decode_change(folder, node.data))
                except ZnodeError as error:
                    logger.warning("all ACLs are read again: %s", error)
                    await self._load()
                    return
        if patterns:
            rows = await self._read(list(dict.fromkeys(patterns)))
            self.authorizer.update(rows)
            self._tell()

    async def _read(
        self, patterns: list[ResourcePattern]
    ) -> dict[ResourcePattern, tuple[AclBinding, ...]]:
        """The ACLs of these resources. A node that is not valid denies its resource to all."""
        nodes = await self._store.get_many([acl_znodes.acl_path(p) for p in patterns])
        rows: dict[ResourcePattern, tuple[AclBinding, ...]] = {}
        for pattern, node in zip(patterns, nodes, strict=True):
            try:
                rows[pattern] = acl_znodes.decode_acls(pattern, node.data) if node else ()
            except ZnodeError as error:
                logger.error("only super users may use it until its node is valid again: %s", error)
                rows[pattern] = (acl_znodes.denial(pattern),)
        return rows
