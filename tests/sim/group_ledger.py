"""The ledger of consumer groups and their invariants: who owns what, which offsets are committed.

A member owns a partition from the moment it is told so until it gives it up, dies, or is told that
it is fenced. A member that cannot reach its coordinator is expired after its session; it may not
know, so what it believes counts only within a session of its last answered heartbeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from sim.invariants import ViolationError
from sim.plan import DELIVERIES_MAX
from sim.share_ledger import ShareLedger

if TYPE_CHECKING:
    from sim.consumer_members import GroupMember

Owned = tuple[UUID, int]
"""Topic id and partition."""


class GroupLedger:
    """All members of the world's group."""

    def __init__(self, session_s: float) -> None:
        self.counts: dict[str, int] = {}
        self.shares = ShareLedger(self.counts, DELIVERIES_MAX)
        """Of the world's share group."""
        self.members: list[GroupMember] = []
        self.verified: set[Owned] = set()
        """Partitions of which the offset was read after healing."""
        self._session_s = session_s
        self._owners: dict[Owned, GroupMember] = {}
        self._committed: dict[Owned, int] = {}

    def count(self, what: str) -> None:
        """Count an event."""
        self.counts[what] = self.counts.get(what, 0) + 1

    # -- partitions

    def taken(self, partition: Owned, member: GroupMember, now_s: float) -> None:
        """A member was given a partition. Raises ViolationError when another one has it."""
        owner = self._owners.get(partition)
        if owner is not None and owner is not member and owner.is_alive_at(now_s, self._session_s):
            raise ViolationError(
                "NoPartitionIsOwnedTwice",
                f"{partition[1]} of {partition[0]} was given to {member.told}, and {owner.told} "
                f"has it, whose heartbeat was answered {now_s - owner.answered_s:.3f} s ago",
            )
        self._owners[partition] = member
        self.count("taken")

    def given_up(self, partition: Owned, member: GroupMember) -> None:
        """A member owns a partition no longer."""
        if self._owners.get(partition) is member:
            del self._owners[partition]

    def unsettled(self, wanted: set[Owned]) -> str:
        """What is forgotten or owned twice now; empty once all is settled."""
        held = [partition for member in self.members for partition in member.owned]
        if len(held) != len(set(held)):
            return f"the group holds partitions twice: {sorted(p for _, p in held)}"
        if set(held) != wanted:
            return f"the group holds {sorted(p for _, p in held)} of {len(wanted)} partitions"
        missing = wanted - self.verified
        return f"{len(missing)} offsets of the group were not read" if missing else ""

    # -- offsets

    def committed(self, partition: Owned, offset: int) -> None:
        """A commit was answered."""
        self._committed[partition] = max(offset, self._committed.get(partition, -1))
        self.count("committed")

    def known(self, partition: Owned) -> int:
        """The highest offset of which the commit was answered; -1 without one."""
        return self._committed.get(partition, -1)


def check_offset(partition: Owned, found: int, known: int, member: str) -> None:
    """Raises ViolationError when a committed offset is lost or was replaced by an older one."""
    if found < known:
        raise ViolationError(
            "NoOffsetGoesBack",
            f"{member}: {partition[1]} of {partition[0]}: {known} was committed, now it is {found}",
        )
