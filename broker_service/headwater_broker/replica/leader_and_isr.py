"""LeaderAndIsr: which role each replica takes, or why a state is not applied (KIP-101, KIP-516).

| case | hosted | leader epoch | partition epoch | assigned here | leads | transition |
|---|---|---|---|---|---|---|
| a | any | any | any | no | any | NOT_ASSIGNED |
| b | failed disk | any | any | yes | any | FAILED |
| c | yes | lower | any | yes | any | STALE |
| d | yes | same | higher, or same with changes | yes | any | UPDATE |
| e | yes | same | same without changes, or lower | yes | any | SAME |
| f | no, stopped, or yes | (same or) higher | any | yes | here | LEAD |
| g | no, stopped, or yes | (same or) higher | any | yes | elsewhere, nowhere | FOLLOW |

A leader learns partition epochs from AlterPartition, too, whose answer names the ISR and not the
replicas: a LeaderAndIsr of the same partition epoch may bring other replicas (d).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.control import PartitionState
from headwater_broker.replica.partition import Partition


def hosted_replica(partition: Partition) -> HostedReplica:
    """The replica as `decide` sees it."""
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


class RoleTransition(Enum):
    """The transition of one replica; the values are texts for log lines."""

    NOT_ASSIGNED = "not assigned to this broker"
    FAILED = "its log directory has failed"
    STALE = "an older leader epoch than the one known"
    UPDATE = "same leader, new ISR or assignment"
    SAME = "known already"
    LEAD = "become leader of a new epoch"
    FOLLOW = "become follower in a new epoch"


@dataclass(frozen=True, slots=True)
class HostedReplica:
    """The present state of a hosted replica."""

    leader_epoch: int
    partition_epoch: int
    is_stopped: bool = False
    is_failed: bool = False


def decide(
    hosted: HostedReplica | None,
    leader_epoch: int,
    partition_epoch: int,
    *,
    is_replica: bool,
    leads_here: bool,
    has_changes: bool,
) -> RoleTransition:
    """The transition for one partition state; see the table above. `has_changes`: its ISR or
    replicas are not those of the hosted replica."""
    if not is_replica:
        return RoleTransition.NOT_ASSIGNED
    role = RoleTransition.LEAD if leads_here else RoleTransition.FOLLOW
    if hosted is None:
        return role
    if hosted.is_failed:
        return RoleTransition.FAILED
    if leader_epoch < hosted.leader_epoch:
        return RoleTransition.STALE
    if leader_epoch > hosted.leader_epoch or hosted.is_stopped:
        return role
    is_newer = partition_epoch > hosted.partition_epoch or (
        partition_epoch == hosted.partition_epoch and has_changes
    )
    return RoleTransition.UPDATE if is_newer else RoleTransition.SAME
