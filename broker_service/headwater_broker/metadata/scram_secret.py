"""The cluster's secret behind the salts of users that do not exist (`scram_credentials`)."""

from __future__ import annotations

from headwater.entropy import Entropy
from headwater.ports.metadata_store import (
    ConnectionLostError,
    Create,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
)

SECRETS = "/headwater/secrets"
"""Nodes below it are for brokers only."""
SCRAM_SECRET = f"{SECRETS}/scram"
SECRET_BYTES = 32


async def ensure_scram_secret(store: MetadataStore, entropy: Entropy) -> bytes:
    """Read the secret, or create it: all brokers have the same one."""
    await store.ensure_path(SECRETS)
    while True:
        try:
            return (await store.get(SCRAM_SECRET)).data
        except NoNodeError:
            fresh = entropy.randbytes(SECRET_BYTES)
        try:
            await store.multi([Create(SCRAM_SECRET, fresh)])
        except (NodeExistsError, ConnectionLostError):
            continue
        return fresh
