"""The states of a consumer group and of its members (KIP-848), and what a member does in each.

A group's state follows from its epochs and members, so it is computed, not stored:

- Empty: no members; perhaps committed offsets.
- Assigning: the group's epoch is above the epoch of its target assignment.
- Reconciling: a member has not taken its part of the target yet.
- Stable: every member has.
- Dead: deleted.

A member's state is stored (record type 8):

- STABLE: it has all of its part of the target, or had when it last looked.
- UNREVOKED: it has to give up partitions and has not confirmed that yet. They stay its own.
- UNRELEASED: it waits for partitions that other members still hold.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class ConsumerGroupState(Enum):
    """Kafka's names, as ConsumerGroupDescribe and ListGroups show them."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """The numbers that are stored."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


class Situation(Enum):
    """The finding of a heartbeat."""

    AT_TARGET = "the member's epoch is the target's, and it owns nothing that it gave up"
    NEWER_TARGET = "the target's epoch is newer, and it owns nothing that it gave up"
    OWNS_REVOKED = "the member owns partitions that it has to give up"


class Step(Enum):
    """The action that follows."""

    KEEP = "nothing"
    TAKE = "go on towards the target: give up, then take what is free"


_S, _N = MemberState, Situation

STEPS: dict[tuple[MemberState, Situation], Step] = {
    (_S.STABLE, _N.AT_TARGET): Step.KEEP,
    (_S.STABLE, _N.NEWER_TARGET): Step.TAKE,
    (_S.UNREVOKED, _N.OWNS_REVOKED): Step.KEEP,
    (_S.UNREVOKED, _N.AT_TARGET): Step.TAKE,
    (_S.UNREVOKED, _N.NEWER_TARGET): Step.TAKE,
    (_S.UNRELEASED, _N.AT_TARGET): Step.TAKE,
    (_S.UNRELEASED, _N.NEWER_TARGET): Step.TAKE,
}
"""Only an UNREVOKED member has partitions to give up; the other pairs do not occur."""
