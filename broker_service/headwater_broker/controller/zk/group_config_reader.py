"""Reads the configs of groups from ZooKeeper: `/config/groups`."""

from __future__ import annotations

import logging
from urllib.parse import unquote

from headwater.ports.metadata_store import MetadataStore, Node
from headwater_broker.metadata import znodes

logger = logging.getLogger(__name__)


async def read_all_group_configs(store: MetadataStore) -> dict[str, dict[str, str]]:
    """The configs by group id, also of nodes without any."""
    group_ids = [unquote(name) for name in sorted(await store.children(znodes.GROUP_CONFIGS))]
    nodes = await store.get_many([znodes.group_config_path(group_id) for group_id in group_ids])
    return {
        group_id: _decoded(group_id, node)
        for group_id, node in zip(group_ids, nodes, strict=True)
        if node is not None
    }


async def read_group_configs(store: MetadataStore, group_id: str) -> dict[str, str] | None:
    """The configs of one group; None if it has no node."""
    (node,) = await store.get_many([znodes.group_config_path(group_id)])
    return None if node is None else _decoded(group_id, node)


def _decoded(group_id: str, node: Node) -> dict[str, str]:
    """Data that is not valid is logged and counts as no configs."""
    path = znodes.group_config_path(group_id)
    try:
        return znodes.decode_overrides(path, node.data) if node.data else {}
    except znodes.ZnodeError as e:
        logger.error("configs of group %s are ignored: %s", group_id, e)
        return {}
