"""LeaderAndIsr and UpdateMetadata in one call: `combine` for the controller, `split` for the
broker.

A call costs more than its content, and both requests mostly hold the same partitions. `split` gives
back exactly the two requests that would have been sent, so no other code knows of the combination.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from headwater.wire.control import (
    BrokerConfigs,
    LeaderAndIsrRequest,
    MetadataPart,
    PartitionState,
    TopicState,
    UpdateMetadataRequest,
)

Key = tuple[UUID, int]


def combine(
    replicas: Mapping[Key, PartitionState],
    metadata: Mapping[Key, PartitionState],
    *,
    cluster_id: str,
    full: bool,
    topics: tuple[TopicState, ...],
    broker_configs: tuple[BrokerConfigs, ...] | None,
    client_quotas: tuple[BrokerConfigs, ...] | None = None,
    group_configs: tuple[BrokerConfigs, ...] | None = None,
) -> MetadataPart | None:
    """The metadata to send with these replica states; None if they must be sent apart.

    They must if a replica is not in the metadata: its state was sent before and refused, and the
    broker may have newer metadata by now.
    """
    if not replicas.keys() <= metadata.keys():
        return None
    return MetadataPart(
        cluster_id=cluster_id,
        full=full,
        topics=topics,
        partitions=tuple(s for key, s in metadata.items() if not _is_same(replicas.get(key), s)),
        broker_configs=broker_configs,
        client_quotas=client_quotas,
        group_configs=group_configs,
    )


def split(request: LeaderAndIsrRequest) -> UpdateMetadataRequest | None:
    """The UpdateMetadata request within a LeaderAndIsr request; None if there is none."""
    along = request.metadata
    if along is None:
        return None
    alike = (with_is_new(s, False) if s.is_new else s for s in request.partitions)
    return UpdateMetadataRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        cluster_id=along.cluster_id,
        full=along.full,
        brokers=request.live_leaders,
        topics=along.topics,
        # For a partition with two rows the later one counts.
        partitions=(*alike, *along.partitions),
        broker_configs=along.broker_configs,
        client_quotas=along.client_quotas,
        group_configs=along.group_configs,
        sequence=request.sequence,
    )


def with_is_new(state: PartitionState, is_new: bool) -> PartitionState:
    """The same state with another `is_new`: whether the broker creates the replica."""
    values = {name: getattr(state, name) for name in PartitionState.__slots__}
    return PartitionState(**{**values, "is_new": is_new})


def _is_same(replica: PartitionState | None, state: PartitionState) -> bool:
    if replica is None or replica is state:
        return replica is state
    return (with_is_new(replica, False) if replica.is_new else replica) == state
