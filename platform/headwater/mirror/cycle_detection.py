"""Keeps a record from going round: finds the mirror in the other direction, and what it wrote.

After a failover the former source is mirrored to, and later the first direction runs again. Each
mirror then leaves out what the other one wrote (`core.partition_copy`); a record never goes round.
"""

from __future__ import annotations

import re

from headwater.client.cluster import Cluster
from headwater.errors import UsageError
from headwater.mirror.core.state import MirrorState
from headwater.mirror.state_reader import read_state

_POSITIONS = re.compile(r"__mirror\.(.+)\.positions")


async def read_reverse(source: Cluster, target_cluster_id: str | None) -> MirrorState:
    """What a mirror from our target to our source stored there; an empty state without one.

    Raises UsageError while it may still run: its last records would be missing in what it stored,
    and be sent back.
    """
    await source.refresh(None)
    for topic in list(source.cache.topics.values()):
        named = _POSITIONS.fullmatch(topic.name)
        if named is None:
            continue
        state = await read_state(source, topic.name, range(len(topic.partitions)))
        if target_cluster_id not in {b.source_cluster_id for b in state.heartbeats.values()}:
            continue  # from a third cluster: its records go on to the target
        if state.promoted_ms is None:
            raise UsageError(
                f"mirror {named[1]} from the target to the source is not promoted: its last "
                "records would be sent back. End it by `headwater mirror promote` with its own file"
            )
        return state
    return MirrorState()
