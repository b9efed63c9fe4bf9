"""The states of a classic group and every legal transition (KIP-62).

- Empty: no members; perhaps committed offsets. A join begins a rebalance; simple consumers and
  tools may commit.
- PreparingRebalance: waits until every member has (re)joined, or for the rebalance timeout.
  Heartbeat and SyncGroup answer REBALANCE_IN_PROGRESS.
- CompletingRebalance: all members have the new generation; waits for the leader's assignment.
  SyncGroup waits. OffsetCommit answers REBALANCE_IN_PROGRESS.
- Stable: assignments are durable and sent.
- Dead: deleted; members are to find the coordinator again.
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
    """An event that changes the state of a group."""

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
    # Loading, and a static member that rejoins with a new member id (KIP-345).
    (_S.STABLE, _E.ASSIGNED): _S.STABLE,
    (_S.EMPTY, _E.DELETED): _S.DEAD,
    (_S.STABLE, _E.DELETED): _S.DEAD,
    # A consumer of the newer protocol joined: the group goes on as a consumer group (KIP-848).
    (_S.PREPARING, _E.DELETED): _S.DEAD,
    (_S.COMPLETING, _E.DELETED): _S.DEAD,
}


class GroupTransitionError(HeadwaterError):
    """A transition that is not in the table: a bug; the shard is loaded again."""


def next_state(group_id: str, state: GroupState, event: GroupEvent) -> GroupState:
    """The state after `event`. Raises GroupTransitionError."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise GroupTransitionError(f"group {group_id!r} is {state.value}, but {event.value}")
    return found
