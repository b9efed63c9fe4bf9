"""Selects the replica that a consumer reads from: one in its rack that has the offset (KIP-392).

The leader answers with a preferred replica and no records; the consumer goes on there, and comes
back to the leader when that one refuses. Kafka's `RackAwareReplicaSelector`.
"""

from __future__ import annotations

from headwater_broker.api.context import Services
from headwater_broker.api.listener_endpoints import endpoints
from headwater_broker.replica.partition import Partition

LEADER = -1
"""No other replica than the leader."""


def preferred_replica(
    services: Services, partition: Partition, listener: str, rack: str, offset: int
) -> int:
    """The live in-sync follower in `rack` that holds `offset` and most beyond; else LEADER.

    Only a leader may be asked. Followers out of sync are left out: they may lag for ever.
    """
    if not rack or not services.config.selects_by_rack:
        return LEADER
    racks = {e.node_id: e.rack for e in endpoints(services, listener, partition.isr)}
    if racks.get(services.broker_id) == rack:
        return LEADER
    near = [
        row for row in partition.in_sync_followers_at(offset) if racks.get(row.replica_id) == rack
    ]
    if not near:
        return LEADER
    return max(near, key=lambda row: (row.log_end_offset, row.caught_up_at)).replica_id
