"""Reads client quotas from ZooKeeper: `/config/users`, `/config/clients`, `/config/ips`."""

from __future__ import annotations

import asyncio
import logging

from headwater.config.quota_precedence import entity_of
from headwater.ports.metadata_store import MetadataStore, NoNodeError
from headwater_broker.metadata import znodes

logger = logging.getLogger(__name__)


async def read_client_quotas(store: MetadataStore) -> dict[str, dict[str, str]]:
    """The quotas by path below `/config`, including nodes that are only parents of others."""
    found: dict[str, dict[str, str]] = {}
    for folder in ("clients", "ips", "users"):
        names = sorted(await store.children(f"/config/{folder}"))
        paths = [f"{folder}/{name}" for name in names]
        rows = await asyncio.gather(*(read_quotas(store, path) for path in paths))
        found.update({path: row for path, row in zip(paths, rows, strict=True) if row is not None})
    for user in [path for path in found if path.startswith("users/")]:
        found.update(await _read_clients(store, f"{user}/clients"))
    return found


async def _read_clients(store: MetadataStore, folder: str) -> dict[str, dict[str, str]]:
    try:
        names = sorted(await store.children(f"/config/{folder}"))
    except NoNodeError:
        return {}
    rows = [(f"{folder}/{name}", await read_quotas(store, f"{folder}/{name}")) for name in names]
    return {folder: {}, **{path: row for path, row in rows if row is not None}}


async def read_quotas(store: MetadataStore, path: str) -> dict[str, str] | None:
    """The quotas in one node; None if it does not exist. Invalid data is logged and counts as no
    quotas."""
    try:
        node = await store.get(f"/config/{path}")
        known = entity_of(path) is not None
        return znodes.decode_overrides(path, node.data) if known and node.data else {}
    except NoNodeError:
        return None
    except znodes.ZnodeError as e:
        logger.error("quotas at /config/%s are ignored: %s", path, e)
        return {}
