"""Compares the partition state of LeaderAndIsr with the hosted replica, for `role_transitions`."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.control import PartitionState
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.role_transitions import HostedReplica, RoleTransition


def hosted_replica(partition: Partition) -> HostedReplica:
    """The replica as `role_transitions` sees it."""
    return HostedReplica(
        partition.leader_epoch,
        partition.partition_epoch,
        is_stopped=bool(partition.offline_reason),
        is_failed=partition.storage_error,
    )


def differs(partition: Partition, state: PartitionState) -> bool:
    """True when `state` has another ISR, or other replicas, than the hosted replica."""
    wanted = (state.isr, state.replicas, state.adding_replicas)
    return wanted != (partition.isr, partition.replicas, partition.adding_replicas)


def rejection(
    state: PartitionState, transition: RoleTransition, hosted: Partition | None
) -> KafkaError:
    """The error of a state that is not applied: KAFKA_STORAGE_ERROR or FENCED_LEADER_EPOCH."""
    is_failed = transition is RoleTransition.FAILED
    return KafkaError(
        ErrorCode.KAFKA_STORAGE_ERROR if is_failed else ErrorCode.FENCED_LEADER_EPOCH,
        f"{state.topic}-{state.partition}: leader epoch {state.leader_epoch}: {transition.value} "
        f"({hosted!r})",
    )
