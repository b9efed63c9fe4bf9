"""Reads one znode within a time limit, for look-ups that a client or a transaction waits for."""

from __future__ import annotations

import asyncio

from headwater.ports.metadata_store import MetadataStore, Node

ANSWER_WITHIN_S = 5.0
"""An unreachable store keeps its callers waiting, and a client waits 30 s by default."""


async def read_in_time(store: MetadataStore, path: str) -> Node:
    """The node. Raises NoNodeError, StoreError, TimeoutError."""
    await asyncio.sleep(0)  # `asyncio.timeout` needs a task (`runtime.first_step`)
    async with asyncio.timeout(ANSWER_WITHIN_S):
        return await store.get(path)
