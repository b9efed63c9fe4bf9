"""Writes ACLs to ZooKeeper: compare-and-set per resource, change node and fence in one multi.

Other writers (an old `kafka-acls.sh` on ZooKeeper) may write at the same time: a lost race is read
and tried again. The multi of a deposed controller fails at its fence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.metadata_store import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
)
from headwater.security.acl import AclBinding, AclFilter
from headwater_broker.controller.write_batches import check_size
from headwater_broker.metadata import acl_znodes
from headwater_broker.metadata.acl_store import all_patterns
from headwater_broker.metadata.znodes import ZnodeError
from headwater_broker.security.standard_authorizer import ResourcePattern, pattern_of

ATTEMPTS = 20
CHANGES_KEPT = 1_000
"""Change nodes that stay. A broker that missed older ones reads all ACLs."""

Edit = Callable[[frozenset[AclBinding]], frozenset[AclBinding]]


async def add_acls(store: MetadataStore, fence: Check, acls: Iterable[AclBinding]) -> None:
    """Add ACLs; those that exist already stay. Raises KafkaError, StoreError."""
    by_pattern: dict[ResourcePattern, set[AclBinding]] = {}
    for acl in acls:
        by_pattern.setdefault(pattern_of(acl), set()).add(acl)
    for pattern, added in by_pattern.items():
        await _edit(store, fence, pattern, frozenset(added).union)


async def remove_acls(
    store: MetadataStore, fence: Check, filters: Sequence[AclFilter]
) -> list[list[AclBinding]]:
    """Remove what the filters select; per filter what was removed. Raises KafkaError, StoreError.

    Each filter tells all that it selects, even what another one removes too, as in KRaft.
    """
    removed: list[set[AclBinding]] = [set() for _ in filters]

    def without(now: frozenset[AclBinding]) -> frozenset[AclBinding]:
        for found, wanted in zip(removed, filters, strict=True):
            found.update(acl for acl in now if wanted.matches(acl))
        return frozenset(a for a in now if not any(f.matches(a) for f in filters))

    for pattern in await all_patterns(store):
        await _edit(store, fence, pattern, without)
    return [sorted(found) for found in removed]


async def _edit(store: MetadataStore, fence: Check, pattern: ResourcePattern, edit: Edit) -> None:
    path = acl_znodes.acl_path(pattern)
    for _ in range(ATTEMPTS):
        try:
            node = (await store.get_many([path]))[0]
            now = frozenset(acl_znodes.decode_acls(pattern, node.data) if node else ())
        except ZnodeError as e:
            text = f"{e}: mend or remove the node first"
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, text) from e
        after = edit(now)
        if after == now:
            return
        data = acl_znodes.encode_acls(after)
        check_size((Set(path, data),), "the ACLs of one resource", ErrorCode.INVALID_REQUEST)
        write: Operation
        if node is None:
            write = Create(path, data)
        elif after:
            write = Set(path, data, node.version)
        else:
            write = Delete(path, node.version)
        prefix, change = acl_znodes.change_of(pattern)
        try:
            await store.multi([fence, write, Create(prefix, change, sequential=True)])
        except (BadVersionError, NodeExistsError, NoNodeError, ConnectionLostError):
            # Another writer was first, or the outcome is unknown: look again.
            await _check_fence(store, fence)
            continue
        await _forget_old_changes(store, fence, prefix.rsplit("/", 1)[0])
        return
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{path} is changed all the time: try again")


async def _check_fence(store: MetadataStore, fence: Check) -> None:
    if (await store.get(fence.path)).version != fence.version:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is no longer the controller")


async def _forget_old_changes(store: MetadataStore, fence: Check, folder: str) -> None:
    names = sorted(await store.children(folder))
    old = names[:-CHANGES_KEPT]
    if len(old) >= CHANGES_KEPT // 10:
        try:
            await store.multi([fence, *(Delete(f"{folder}/{name}") for name in old)])
        except NoNodeError:
            return  # another writer removed some; the rest goes next time
