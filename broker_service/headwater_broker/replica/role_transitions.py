"""What LeaderAndIsr makes of one replica: a pure decision over epochs and roles (KIP-101, KIP-516).

| case | hosted | leader epoch | partition epoch | here among replicas | leads | decision |
|---|---|---|---|---|---|---|
| a | any | any | any | no | any | NOT_HERE |
| b | failed disk | any | any | yes | any | FAILED |
| c | yes | lower | any | yes | any | STALE |
| d | yes | same | higher, or same and it tells other things | yes | any | UPDATE |
| e | yes | same | same and it tells the same, or lower | yes | any | SAME |
| f | no, stopped, or yes | (same or) higher | any | yes | here | LEAD |
| g | no, stopped, or yes | (same or) higher | any | yes | elsewhere, nobody | FOLLOW |

A leader learns partition epochs from AlterPartition too, whose answer names the ISR, not the
replicas: what LeaderAndIsr of that same epoch tells besides is news (d).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Decision(Enum):
    """What to do with one replica."""

    NOT_HERE = "not assigned to this broker"
    FAILED = "its log directory has failed"
    STALE = "an older leader epoch than the one known"
    UPDATE = "same leader, new ISR or assignment"
    SAME = "known already"
    LEAD = "become leader of a new epoch"
    FOLLOW = "become follower in a new epoch"


@dataclass(frozen=True, slots=True)
class HostedReplica:
    """A replica as it is."""

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
    is_other: bool,
) -> Decision:
    """The decision for one partition state; see the table above. `is_other`: its ISR or replicas
    are not those that are known here."""
    if not is_replica:
        return Decision.NOT_HERE
    role = Decision.LEAD if leads_here else Decision.FOLLOW
    if hosted is None:
        return role
    if hosted.is_failed:
        return Decision.FAILED
    if leader_epoch < hosted.leader_epoch:
        return Decision.STALE
    if leader_epoch > hosted.leader_epoch or hosted.is_stopped:
        return role
    is_news = partition_epoch > hosted.partition_epoch or (
        partition_epoch == hosted.partition_epoch and is_other
    )
    return Decision.UPDATE if is_news else Decision.SAME
