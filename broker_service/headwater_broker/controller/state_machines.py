"""The two state machines of the controller as tables: partitions and replicas.

A pair that is not in a table is an error that names both states. Every legal pair has a letter, so
that logs and tests can cite it. The tables are those of Kafka's PartitionStateMachine and
ReplicaStateMachine; the decisions on moves are in `decisions`.
"""

from __future__ import annotations

from enum import Enum

from headwater.errors import HeadwaterError


class PartitionPhase(Enum):
    """Where a partition is in its life."""

    NON_EXISTENT = "NonExistent"
    """Never created, or deleted."""
    NEW = "New"
    """Has replicas assigned, but neither leader nor ISR: takes no data."""
    ONLINE = "Online"
    """Has a leader."""
    OFFLINE = "Offline"
    """Had a leader; none of its replicas may lead now."""


class ReplicaPhase(Enum):
    """Where one replica is in its life."""

    NON_EXISTENT = "NonExistent"
    NEW = "New"
    """Assigned, not yet told."""
    ONLINE = "Online"
    """Told to lead or follow."""
    OFFLINE = "Offline"
    """Its broker, or its disk there, is not available."""
    DELETION_STARTED = "DeletionStarted"
    DELETION_SUCCESSFUL = "DeletionSuccessful"
    DELETION_INELIGIBLE = "DeletionIneligible"
    """The broker could not delete it: tried again later."""


class InvalidTransitionError(HeadwaterError):
    """A move that no table allows: a defect of the controller, told with its story."""


_P = PartitionPhase
_R = ReplicaPhase

PARTITION_MOVES: dict[tuple[PartitionPhase, PartitionPhase], str] = {
    (_P.NON_EXISTENT, _P.NEW): "A: the assignment is known",
    (_P.NEW, _P.ONLINE): "B: first leader: the first live replica; ISR: all live replicas",
    (_P.NEW, _P.OFFLINE): "C: deleted, or its brokers died, before it ever led",
    (_P.ONLINE, _P.ONLINE): "D: another leader, ISR or replica set",
    (_P.ONLINE, _P.OFFLINE): "E: the leader is gone and nobody may follow it",
    (_P.OFFLINE, _P.ONLINE): "F: a replica that may lead is back",
    (_P.OFFLINE, _P.OFFLINE): "G: still nobody; the reason may differ",
    (_P.OFFLINE, _P.NON_EXISTENT): "H: deleted",
}

REPLICA_MOVES: dict[tuple[ReplicaPhase, ReplicaPhase], str] = {
    (_R.NON_EXISTENT, _R.NEW): "a: assigned",
    (_R.NEW, _R.ONLINE): "b: told its leader",
    (_R.NEW, _R.OFFLINE): "c: its broker went first",
    (_R.ONLINE, _R.ONLINE): "d: told again",
    (_R.ONLINE, _R.OFFLINE): "e: its broker went, is leaving, or lost the disk",
    (_R.OFFLINE, _R.ONLINE): "f: its broker is back",
    (_R.OFFLINE, _R.OFFLINE): "g: still away",
    (_R.OFFLINE, _R.DELETION_STARTED): "h: asked to delete",
    (_R.DELETION_STARTED, _R.DELETION_SUCCESSFUL): "i: the broker confirmed",
    (_R.DELETION_STARTED, _R.DELETION_INELIGIBLE): "j: the broker failed, or went",
    (_R.DELETION_INELIGIBLE, _R.OFFLINE): "k: to be tried again",
    (_R.DELETION_INELIGIBLE, _R.ONLINE): "l: assigned to this broker again",
    (_R.DELETION_SUCCESSFUL, _R.NON_EXISTENT): "m: forgotten",
}


def partition_move(name: str, now: PartitionPhase, to: PartitionPhase) -> PartitionPhase:
    """`to`, when the table allows it. Raises InvalidTransitionError."""
    if (now, to) not in PARTITION_MOVES:
        raise InvalidTransitionError(f"partition {name}: {now.value} -> {to.value} is not allowed")
    return to


def replica_move(name: str, now: ReplicaPhase, to: ReplicaPhase) -> ReplicaPhase:
    """`to`, when the table allows it. Raises InvalidTransitionError."""
    if (now, to) not in REPLICA_MOVES:
        raise InvalidTransitionError(f"replica {name}: {now.value} -> {to.value} is not allowed")
    return to
