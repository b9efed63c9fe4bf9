"""Input and output of a consumer group's assignor: Kafka's GroupSpec and GroupAssignment.

A new assignor is a module here and a row of `served.ASSIGNORS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

Partitions = Mapping[UUID, frozenset[int]]
"""Partition numbers by topic id; topics without any are left out."""


@dataclass(frozen=True, slots=True)
class AssignorMember:
    """One member as the assignor sees it."""

    topics: frozenset[UUID]
    """The existing topics that it subscribes to."""
    target: Partitions
    """Its part of the target assignment so far."""
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True, slots=True)
class TopicShape:
    """One topic: how many partitions it has, and the racks of each one's replicas."""

    partitions: int
    racks: tuple[frozenset[str], ...] = ()
    """By partition; empty: no racks are known."""


Assignor = Callable[
    [Mapping[str, AssignorMember], Mapping[UUID, TopicShape]], dict[str, Partitions]
]
"""(members by id, topics by id) -> target by member id, a row for each member. The same input gives
the same answer, in whatever order it comes."""
