"""Writes a Ready to ZooKeeper: few large multis, each fenced by the version of `/controller_epoch`.

The multi of a deposed controller fails as a whole at its Check. After a lost connection the outcome
is unknown: the nodes are read again, and the written value there means success.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

from headwater.errors import HeadwaterError
from headwater.ports.metadata_store import (
    BadVersionError,
    Check,
    ConnectionLostError,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
)
from headwater_broker.controller.write_batches import (
    MULTI_BYTES_MAX,
    REQUEST_BYTES_MAX,
    size_of,
)

MULTI_OPERATIONS_MAX = 1000
RETRY_DELAY_S = 0.05

logger = logging.getLogger(__name__)


class DeposedError(HeadwaterError):
    """ZooKeeper is not as this controller left it: it must resign and load the state again."""


class TooLargeError(HeadwaterError):
    """A write above ZooKeeper's limit, on which it would close the connection each time. The
    decision is given up."""


async def write_all(
    store: MetadataStore, fence: Check, groups: Sequence[tuple[Operation, ...]]
) -> None:
    """Write the batches in order. Raises DeposedError, SessionExpiredError, TooLargeError."""
    for chunk in _chunks(groups):
        await _write_chunk(store, fence, chunk)


async def remove_requests(store: MetadataStore, fence: Check, paths: Sequence[str]) -> None:
    """Remove request nodes that are done. If a client has removed one itself, the controller goes
    on. Raises DeposedError, SessionExpiredError."""
    try:
        await write_all(store, fence, [(Delete(path),) for path in paths])
        return
    except DeposedError as e:
        if not isinstance(e.__cause__, NoNodeError):
            raise
    for path in paths:
        if await _is_there(store, path):
            await write_all(store, fence, [(Delete(path),)])


async def _is_there(store: MetadataStore, path: str) -> bool:
    while True:
        try:
            await store.get(path)
        except NoNodeError:
            return False
        except ConnectionLostError:
            await asyncio.sleep(RETRY_DELAY_S)
        else:
            return True


def _chunks(groups: Sequence[tuple[Operation, ...]]) -> Iterator[list[Operation]]:
    chunk: list[Operation] = []
    size = 0
    for group in groups:
        group_bytes = size_of(group)
        is_full = len(chunk) + len(group) > MULTI_OPERATIONS_MAX
        if chunk and (is_full or size + group_bytes > MULTI_BYTES_MAX):
            yield chunk
            chunk, size = [], 0
        chunk.extend(group)
        size += group_bytes
    if chunk:
        yield chunk


async def _write_chunk(store: MetadataStore, fence: Check, chunk: list[Operation]) -> None:
    if (size := size_of(chunk)) > REQUEST_BYTES_MAX:
        largest = max(chunk, key=lambda operation: size_of((operation,)))
        raise TooLargeError(f"a write of {size} bytes is too large, mostly by {largest.path}")
    while True:
        try:
            await store.multi([fence, *chunk])
            return
        except ConnectionLostError:
            if await _was_applied(store, fence, chunk):
                return
        except (BadVersionError, NodeExistsError, NoNodeError, NotEmptyError) as e:
            if isinstance(e, NotEmptyError) and await _clear(store, fence, chunk):
                continue
            raise DeposedError(f"a write of {len(chunk)} operations failed: {e!r}") from e


async def _clear(store: MetadataStore, fence: Check, chunk: list[Operation]) -> bool:
    """Delete nodes that somebody created below the nodes to delete, as Kafka does: otherwise the
    deletion would fail for ever. False if there are none."""
    doomed = {op.path for op in chunk if isinstance(op, Delete)}
    strays: list[Operation] = []
    for path in sorted(doomed):
        for child in await _children(store, path):
            if f"{path}/{child}" not in doomed:
                strays += [Delete(p) for p in await _tree(store, f"{path}/{child}")]
    if strays:
        logger.warning("%d nodes that were created by hand are deleted too", len(strays))
        await store.multi([fence, *strays])
    return bool(strays)


async def _tree(store: MetadataStore, path: str) -> list[str]:
    """The paths of a node and of all nodes below it, the deepest first."""
    rows = []
    for child in await _children(store, path):
        rows += await _tree(store, f"{path}/{child}")
    return [*rows, path]


async def _children(store: MetadataStore, path: str) -> list[str]:
    try:
        return sorted(await store.children(path))
    except NoNodeError:
        return []


async def _was_applied(store: MetadataStore, fence: Check, chunk: list[Operation]) -> bool:
    while True:
        try:
            if (await store.get(fence.path)).version != fence.version:
                raise DeposedError(f"{fence.path} changed while the connection was lost")
            for operation in chunk:
                applied = await _is_applied(store, operation)
                if applied is not None:
                    return applied
            return False
        except ConnectionLostError:
            await asyncio.sleep(RETRY_DELAY_S)


async def _is_applied(store: MetadataStore, operation: Operation) -> bool | None:
    """Whether this operation was applied; None if its node does not tell. A multi is atomic."""
    try:
        node = await store.get(operation.path)
    except NoNodeError:
        return isinstance(operation, Delete)
    if isinstance(operation, Delete):
        return False
    if isinstance(operation, Create):
        if node.data != operation.data:
            raise DeposedError(f"{operation.path} was created by another client")
        return True
    if isinstance(operation, Set) and operation.version >= 0:
        if node.version == operation.version:
            return False
        if node.version == operation.version + 1 and node.data == operation.data:
            return True
        raise DeposedError(f"{operation.path} was changed by another client")
    return None
