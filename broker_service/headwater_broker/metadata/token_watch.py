"""Keeps a broker's delegation tokens equal to those in ZooKeeper.

A change of a token adds a node below `/delegation_token/token_changes`: the tokens that such new
nodes name are read again, and after a reconnect all of them.
"""

from __future__ import annotations

import logging

from headwater.ports.metadata_store import MetadataStore
from headwater_broker.metadata.change_follower import ChangeFollower
from headwater_broker.metadata.token_znodes import (
    TOKEN_CHANGES,
    TOKENS,
    decode_token,
    token_path,
)
from headwater_broker.metadata.znodes import ZnodeError
from headwater_broker.security.delegation_tokens import DelegationToken, TokenTable

RETRY_DELAY_S = 0.1
FOLDERS = (TOKENS, TOKEN_CHANGES)

logger = logging.getLogger(__name__)


class TokenWatch:
    """Reads tokens into a `TokenTable`, now and after each change."""

    def __init__(self, store: MetadataStore, table: TokenTable) -> None:
        self._store = store
        self.table = table
        self._seen: frozenset[str] = frozenset()
        """Nodes below `token_changes` that were handled."""
        self._follower = ChangeFollower(
            store, FOLDERS, self._read, name="delegation tokens", retry_s=RETRY_DELAY_S
        )

    async def start(self) -> None:
        """Load all tokens, then follow their changes. Does nothing without a secret key.

        Raises StoreError.
        """
        if not self.table.secrets.is_enabled:
            return
        for path in FOLDERS:
            await self._store.ensure_path(path)
        await self._follower.start()

    async def stop(self) -> None:
        """Follow no more changes."""
        await self._follower.close()

    async def _read(self) -> None:
        reads_all, self._follower.reads_all = self._follower.reads_all, False
        changes = frozenset(await self._store.children(TOKEN_CHANGES))
        stored = set(await self._store.children(TOKENS))
        wanted = stored if reads_all else stored - self._known() | await self._named(changes)
        found, removed = await self._tokens(sorted(wanted))
        self.table.update(found, removed | (self._known() - stored))
        self._seen = changes

    def _known(self) -> set[str]:
        return {token.token_id for token in self.table.tokens()}

    async def _named(self, changes: frozenset[str]) -> set[str]:
        paths = [f"{TOKEN_CHANGES}/{name}" for name in sorted(changes - self._seen)]
        nodes = await self._store.get_many(paths)
        return {node.data.decode(errors="replace") for node in nodes if node is not None}

    async def _tokens(self, ids: list[str]) -> tuple[list[DelegationToken], set[str]]:
        found, removed = [], set()
        for token_id in [text for text in ids if "/" in text or not text]:
            logger.error("a change of token %r is ignored: it is no token id", token_id)
        valid = [text for text in ids if text and "/" not in text]
        nodes = await self._store.get_many([token_path(token_id) for token_id in valid])
        for token_id, node in zip(valid, nodes, strict=True):
            if node is None:
                removed.add(token_id)
                continue
            try:
                found.append(decode_token(token_id, node.data))
            except ZnodeError as e:
                logger.error("a delegation token is ignored: %s", e)
                removed.add(token_id)
        return found, removed
