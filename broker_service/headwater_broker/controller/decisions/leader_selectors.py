"""Kafka's leader selectors as lettered tables; `leader_elections` applies them. Pure.

`may_lead` holds the replicas without a fault: the broker is live, has the disk and is not shutting
down. The order of the assignment decides, not that of the ISR: the first replica is preferred.
`leader_elections` reads `unclean.leader.election.enable` of the topic.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Case(Enum):
    """The row of a table that decided. Logs and tests cite the letter."""

    CLEAN = "A: a member of the ISR may lead"
    NONE_IN_SYNC = "B: no member of the ISR may lead, and unclean election is not allowed"
    UNCLEAN = "C: no member of the ISR may lead: an out-of-sync replica leads, records may be lost"
    NONE_LIVE = "D: no replica may lead"
    PREFERRED = "E: the preferred replica is in sync and leads"
    NOT_NEEDED = "F: the leader need not change"
    PREFERRED_UNAVAILABLE = "G: the preferred replica may not lead or is out of sync"
    MOVED = "H: another member of the ISR leads instead of the leaving broker"
    CANNOT_MOVE = "I: the leaving broker is the only member of the ISR"
    ELIGIBLE = "J: no member of the ISR may lead, an eligible replica leads (KIP-966)"


@dataclass(frozen=True, slots=True)
class Choice:
    """A leader and its ISR; `leader` None: the state stays as it is."""

    case: Case
    leader: int | None = None
    isr: tuple[int, ...] = ()


def offline(
    replicas: tuple[int, ...],
    isr: tuple[int, ...],
    may_lead: frozenset[int],
    *,
    unclean: bool,
    elr: tuple[int, ...] = (),
) -> Choice:
    """The leader is gone. `elr`: eligible leader replicas, which have every committed record."""
    for case, members in ((Case.CLEAN, isr), (Case.ELIGIBLE, elr)):
        able = tuple(b for b in members if b in may_lead)
        for broker_id in replicas:
            if broker_id in able:
                return Choice(case, broker_id, able)
    if not unclean:
        return Choice(Case.NONE_IN_SYNC)
    for broker_id in replicas:
        if broker_id in may_lead:
            return Choice(Case.UNCLEAN, broker_id, (broker_id,))
    return Choice(Case.NONE_LIVE)


def reassigned(
    target: tuple[int, ...], leader: int, isr: tuple[int, ...], may_lead: frozenset[int]
) -> Choice:
    """The replicas become `target`: keep the leader if it stays, else take the first in sync."""
    kept = tuple(b for b in isr if b in target)
    if leader in kept and leader in may_lead:
        return Choice(Case.NOT_NEEDED, leader, kept)
    for broker_id in target:
        if broker_id in kept and broker_id in may_lead:
            return Choice(Case.CLEAN, broker_id, kept)
    return Choice(Case.NONE_IN_SYNC)


def preferred(
    replicas: tuple[int, ...], leader: int, isr: tuple[int, ...], may_lead: frozenset[int]
) -> Choice:
    """The first replica leads if it is in sync."""
    first = replicas[0]
    if leader == first:
        return Choice(Case.NOT_NEEDED)
    if first in isr and first in may_lead:
        return Choice(Case.PREFERRED, first, isr)
    return Choice(Case.PREFERRED_UNAVAILABLE)


def controlled_shutdown(
    replicas: tuple[int, ...], isr: tuple[int, ...], may_lead: frozenset[int], leaving: int
) -> Choice:
    """The leader shuts down: another member of the ISR leads, and the old leader leaves the ISR."""
    rest = tuple(b for b in isr if b != leaving)
    for broker_id in replicas:
        if broker_id in rest and broker_id in may_lead:
            return Choice(Case.MOVED, broker_id, rest)
    return Choice(Case.CANNOT_MOVE)
