"""LeaderAndIsr and UpdateMetadata in one call: how the controller joins them, a broker parts them.

A call costs more than what it carries, and both mostly tell the same partitions. What is joined is
read back as exactly the two requests that would have been sent, so that nothing else knows of it.
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


def join(
    replicas: Mapping[Key, PartitionState],
    metadata: Mapping[Key, PartitionState],
    *,
    cluster_id: str,
    full: bool,
    topics: tuple[TopicState, ...],
    broker_configs: tuple[BrokerConfigs, ...] | None,
    client_quotas: tuple[BrokerConfigs, ...] | None = None,
) -> MetadataPart | None:
    """What goes along with these replicas; None when some of them are not to be told as metadata.

    Such a replica was told before and refused: by now its broker may know better from metadata.
    """
    if not replicas.keys() <= metadata.keys():
        return None
    return MetadataPart(
        cluster_id=cluster_id,
        full=full,
        topics=topics,
        partitions=tuple(s for key, s in metadata.items() if not _is_told(replicas.get(key), s)),
        broker_configs=broker_configs,
        client_quotas=client_quotas,
    )


def part(request: LeaderAndIsrRequest) -> UpdateMetadataRequest | None:
    """The metadata that came along, whole; None when there is none."""
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
        # The later row of a partition counts.
        partitions=(*alike, *along.partitions),
        broker_configs=along.broker_configs,
        client_quotas=along.client_quotas,
        sequence=request.sequence,
    )


def with_is_new(state: PartitionState, is_new: bool) -> PartitionState:
    """The same state, for a broker that shall make the replica, or shall not."""
    values = {name: getattr(state, name) for name in PartitionState.__slots__}
    return PartitionState(**{**values, "is_new": is_new})


def _is_told(replica: PartitionState | None, state: PartitionState) -> bool:
    if replica is None or replica is state:
        return replica is state
    return (with_is_new(replica, False) if replica.is_new else replica) == state
