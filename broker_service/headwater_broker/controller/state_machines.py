"""Kafka's PartitionStateMachine and ReplicaStateMachine as tables of allowed transitions.

A transition that is not in its table raises an error that names both states. Every allowed one has
a letter that logs and tests cite. The modules in `decisions` choose the transitions.
"""

from __future__ import annotations

from enum import Enum

from headwater.errors import HeadwaterError


class PartitionPhase(Enum):
    """State of a partition."""

    NON_EXISTENT = "NonExistent"
    """Never created, or deleted."""
    NEW = "New"
    """Has replicas, but neither leader nor ISR."""
    ONLINE = "Online"
    """Has a leader."""
    OFFLINE = "Offline"
    """Had a leader, and no replica may lead now."""


class ReplicaPhase(Enum):
    """State of one replica."""

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    """Assigned; LeaderAndIsr was not sent yet."""
    ONLINE = "Online"
    """Its broker got LeaderAndIsr for it."""
    OFFLINE = "Offline"
    """Its broker or its disk is not available."""
    DELETION_STARTED = "DeletionStarted"
    DELETION_SUCCESSFUL = "DeletionSuccessful"
    DELETION_INELIGIBLE = "DeletionIneligible"
    """The broker could not delete it; the controller tries again later."""


class InvalidTransitionError(HeadwaterError):
    """A transition that the tables do not allow: a bug in the controller."""


_P = PartitionPhase
_R = ReplicaPhase

PARTITION_MOVES: dict[tuple[PartitionPhase, PartitionPhase], str] = {
    (_P.NON_EXISTENT, _P.NEW): "A: the assignment is known",
    (_P.NEW, _P.ONLINE): "B: first leader: the first live replica; ISR: all live replicas",
    (_P.NEW, _P.OFFLINE): "C: deleted, or its brokers died, before it had a leader",
    (_P.ONLINE, _P.ONLINE): "D: another leader, ISR or replica set",
    (_P.ONLINE, _P.OFFLINE): "E: the leader is gone and no replica may lead",
    (_P.OFFLINE, _P.ONLINE): "F: a replica that may lead is back",
    (_P.OFFLINE, _P.OFFLINE): "G: still no leader; the reason may differ",
    (_P.OFFLINE, _P.NON_EXISTENT): "H: deleted",
}

REPLICA_MOVES: dict[tuple[ReplicaPhase, ReplicaPhase], str] = {
    (_R.NON_EXISTENT, _R.NEW): "a: assigned",
    (_R.NEW, _R.ONLINE): "b: LeaderAndIsr is sent",
    (_R.NEW, _R.OFFLINE): "c: its broker stops first",
    (_R.ONLINE, _R.ONLINE): "d: LeaderAndIsr is sent again",
    (_R.ONLINE, _R.OFFLINE): "e: its broker is gone or shutting down, or its disk failed",
    (_R.OFFLINE, _R.ONLINE): "f: its broker is back",
    (_R.OFFLINE, _R.OFFLINE): "g: its broker is still gone",
    (_R.OFFLINE, _R.DELETION_STARTED): "h: StopReplica with delete is sent",
    (_R.DELETION_STARTED, _R.DELETION_SUCCESSFUL): "i: the broker confirmed",
    (_R.DELETION_STARTED, _R.DELETION_INELIGIBLE): "j: the broker failed to delete it, or is gone",
    (_R.DELETION_INELIGIBLE, _R.OFFLINE): "k: the deletion is tried again",
    (_R.DELETION_INELIGIBLE, _R.ONLINE): "l: assigned to this broker again",
    (_R.DELETION_SUCCESSFUL, _R.NON_EXISTENT): "m: deleted",
}


def partition_move(name: str, now: PartitionPhase, to: PartitionPhase) -> PartitionPhase:
    """Check the transition against the table and return `to`. Raises InvalidTransitionError."""
    if (now, to) not in PARTITION_MOVES:
        raise InvalidTransitionError(f"partition {name}: {now.value} -> {to.value} is not allowed")
    return to


def replica_move(name: str, now: ReplicaPhase, to: ReplicaPhase) -> ReplicaPhase:
    """Check the transition against the table and return `to`. Raises InvalidTransitionError."""
    if (now, to) not in REPLICA_MOVES:
        raise InvalidTransitionError(f"replica {name}: {now.value} -> {to.value} is not allowed")
    return to
