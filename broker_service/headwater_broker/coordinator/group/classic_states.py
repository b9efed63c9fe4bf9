"""The states of a classic group and every legal move between them (KIP-62).

- Empty: no members; perhaps committed offsets. Joins begin a rebalance; simple consumers and tools
  may commit.
- PreparingRebalance: waits until every member has (re)joined, or for the rebalance time-out.
  Heartbeats and syncs are told REBALANCE_IN_PROGRESS.
- CompletingRebalance: everybody has the new generation; waits for the leader's assignment. Syncs
  are parked. Commits are told REBALANCE_IN_PROGRESS.
- Stable: assignments are durable and given out.
- Dead: deleted; whoever still holds it is told to find the coordinator again.
"""

from __future__ import annotations

from enum import Enum

from headwater.errors import HeadwaterError


class GroupState(Enum):
    """Kafka's names, as DescribeGroups and ListGroups show them."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupEvent(Enum):
    """What moves a group."""

    REBALANCE = "a rebalance begins"
    JOINED = "all members have joined"
    EMPTIED = "the record of a generation without members was replayed"
    ASSIGNED = "the record of a generation's assignment was replayed"
    DELETED = "the group's tombstone was replayed"


_S, _E = GroupState, GroupEvent

TRANSITIONS: dict[tuple[GroupState, GroupEvent], GroupState] = {
    (_S.EMPTY, _E.REBALANCE): _S.PREPARING,
    (_S.STABLE, _E.REBALANCE): _S.PREPARING,
    (_S.COMPLETING, _E.REBALANCE): _S.PREPARING,
    (_S.PREPARING, _E.JOINED): _S.COMPLETING,
    (_S.PREPARING, _E.EMPTIED): _S.EMPTY,
    (_S.COMPLETING, _E.ASSIGNED): _S.STABLE,
    # Loading: a log holds one complete generation after the other.
    (_S.EMPTY, _E.ASSIGNED): _S.STABLE,
    (_S.EMPTY, _E.EMPTIED): _S.EMPTY,
    (_S.STABLE, _E.EMPTIED): _S.EMPTY,
    # Loading, and a static member that came back under a new member id (KIP-345).
    (_S.STABLE, _E.ASSIGNED): _S.STABLE,
    (_S.EMPTY, _E.DELETED): _S.DEAD,
    (_S.STABLE, _E.DELETED): _S.DEAD,
}


class GroupTransitionError(HeadwaterError):
    """A move that the table does not have: a bug, which drops the shard."""


def next_state(group_id: str, state: GroupState, event: GroupEvent) -> GroupState:
    """Where `event` leads. Raises GroupTransitionError."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise GroupTransitionError(f"group {group_id!r} is {state.value}, but {event.value}")
    return found
