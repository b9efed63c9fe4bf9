"""What LeaderAndIsr tells of one replica, held against what is here: `transitions` decides."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.control import PartitionState
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.role_transitions import Decision, HostedReplica


def hosted_replica(partition: Partition) -> HostedReplica:
    """The replica as `transitions` looks at it."""
    return HostedReplica(
        partition.leader_epoch,
        partition.partition_epoch,
        is_stopped=bool(partition.offline_reason),
        is_failed=partition.storage_error,
    )


def is_other(partition: Partition, state: PartitionState) -> bool:
    """Whether it tells another ISR or other replicas than are known."""
    told = (state.isr, state.replicas, state.adding_replicas)
    return told != (partition.isr, partition.replicas, partition.adding_replicas)


def refusal(state: PartitionState, what: Decision, hosted: Partition | None) -> KafkaError:
    """The error of a decision to do nothing: KAFKA_STORAGE_ERROR or FENCED_LEADER_EPOCH."""
    code = (
        ErrorCode.KAFKA_STORAGE_ERROR if what is Decision.FAILED else ErrorCode.FENCED_LEADER_EPOCH
    )
    return KafkaError(
        code,
        f"{state.topic}-{state.partition}: leader epoch {state.leader_epoch}: {what.value} "
        f"({hosted!r})",
    )
