"""The two state machines: every pair of states, against matrices of allowed transitions."""

from __future__ import annotations

from itertools import product

import pytest

from headwater_broker.controller.state_machines import (
    InvalidTransitionError,
    PartitionPhase,
    ReplicaPhase,
    partition_move,
    replica_move,
)

PARTITION_MATRIX = {
    "NonExistent": {"New"},
    "New": {"Online", "Offline"},
    "Online": {"Online", "Offline"},
    "Offline": {"Online", "Offline", "NonExistent"},
}
REPLICA_MATRIX = {
    "NonExistent": {"New"},
    "New": {"Online", "Offline"},
    "Online": {"Online", "Offline"},
    "Offline": {"Online", "Offline", "DeletionStarted"},
    "DeletionStarted": {"DeletionSuccessful", "DeletionIneligible"},
    "DeletionSuccessful": {"NonExistent"},
    "DeletionIneligible": {"Online", "Offline"},
}


@pytest.mark.parametrize(("now", "to"), list(product(PartitionPhase, PartitionPhase)))
def test_partition_moves(now: PartitionPhase, to: PartitionPhase) -> None:
    if to.value in PARTITION_MATRIX[now.value]:
        assert partition_move("t-0", now, to) is to
    else:
        with pytest.raises(InvalidTransitionError, match=f"{now.value} -> {to.value}"):
            partition_move("t-0", now, to)


@pytest.mark.parametrize(("now", "to"), list(product(ReplicaPhase, ReplicaPhase)))
def test_replica_moves(now: ReplicaPhase, to: ReplicaPhase) -> None:
    if to.value in REPLICA_MATRIX[now.value]:
        assert replica_move("t-0@1", now, to) is to
    else:
        with pytest.raises(InvalidTransitionError, match=f"{now.value} -> {to.value}"):
            replica_move("t-0@1", now, to)
