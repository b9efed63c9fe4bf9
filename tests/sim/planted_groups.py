"""Planted bugs of consumer groups, each with the invariants that detect it."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.client.core.assignors import (
    ASSIGNORS,
    Assignment,
    Assignor,
    Counts,
    Members,
    assign_range,
    assign_sticky,
)
from headwater_broker.coordinator.group.consumer.commits import EpochChecks
from headwater_broker.coordinator.group.consumer.group import ConsumerGroup
from headwater_broker.coordinator.group.consumer.groups import ConsumerGroups
from sim.member_anomalies import late_commit
from sim.planted import Planted
from sim.scripted import scripted

FORGOTTEN = frozenset({"MetadataConverges"})


def give_what_is_held(patch: pytest.MonkeyPatch) -> None:
    """A member is given partitions that another one has not given up."""
    patch.setattr(ConsumerGroup, "is_held", lambda self, topic_id, partition: False)


def forget_sessions_at_a_load(patch: pytest.MonkeyPatch) -> None:
    """A new coordinator does not expire the members that it has loaded."""
    patch.setattr(ConsumerGroups, "loaded", lambda self, group, now: None)


def take_any_epoch(patch: pytest.MonkeyPatch) -> None:
    """A commit of an older epoch is taken for partitions that the member lost since."""

    def all_may(self: EpochChecks, *_: Any, **__: Any) -> dict[Any, Any]:
        return {}

    patch.setattr(EpochChecks, "check_commit", all_may)


def assign_what_is_not_revoked(patch: pytest.MonkeyPatch) -> None:
    """A cooperative assignor gives a partition away before its owner has given it up (KIP-429)."""
    name = "cooperative-sticky"
    patch.setitem(ASSIGNORS, name, Assignor(name, assign_sticky, is_cooperative=True))


def assign_all_but_one(patch: pytest.MonkeyPatch) -> None:
    """An assignor forgets a partition."""

    def assign(members: Members, counts: Counts) -> Assignment:
        return assign_range(members, {topic: count - 1 for topic, count in counts.items()})

    patch.setitem(ASSIGNORS, "range", Assignor("range", assign))


PLANTED_GROUPS = (
    Planted(
        "assign what is not revoked",
        assign_what_is_not_revoked,
        frozenset({"NoPartitionIsOwnedTwice"}),
        {"slow": 1.0},
        members=4,
        assignor="cooperative-sticky",
        first_seed=6,
    ),
    Planted(
        "assign all but one",
        assign_all_but_one,
        FORGOTTEN,
        {"slow": 1.0},
        members=2,
        assignor="range",
    ),
    Planted(
        "give what is held",
        give_what_is_held,
        frozenset({"NoPartitionIsOwnedTwice"}) | FORGOTTEN,
        {"slow": 1.0},
        members=4,
    ),
    Planted(
        "forget sessions at a load",
        forget_sessions_at_a_load,
        FORGOTTEN,
        {"kill": 1.0},
        members=4,
    ),
    Planted(
        "take any epoch",
        take_any_epoch,
        frozenset({"NoOffsetGoesBack"}),
        {"slow": 1.0},
        kind=scripted(late_commit, 2),
    ),
)
