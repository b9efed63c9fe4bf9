"""Planted bugs of rights, each with the invariants that detect it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from headwater.security.acl import AclBinding
from headwater_broker.security.standard_authorizer import ResourcePattern, StandardAuthorizer
from sim.planted import Planted
from sim.rights import FAULTS, RIGHTS, TOPIC, Guarded


def remember_decisions_for_ever(patch: pytest.MonkeyPatch) -> None:
    """A session keeps what it decided, whatever has changed since."""
    update = StandardAuthorizer.update

    def silent(
        self: StandardAuthorizer, changed: Mapping[ResourcePattern, Iterable[AclBinding]]
    ) -> None:
        generation = self.generation
        update(self, changed)
        self.generation = generation

    patch.setattr(StandardAuthorizer, "update", silent)


def read_after_a_reconnect_only(patch: pytest.MonkeyPatch) -> None:
    """A broker passes changes over, and reads the ACLs anew when its session is back."""

    patch.setattr(StandardAuthorizer, "update", lambda *_: None)


PLANTED_RIGHTS = tuple(
    Planted(
        name, plant, seen_by, FAULTS, fault_pause_s=1.5, down_s=(0.1, 3.0), kind=Guarded,
        properties=RIGHTS, topics={"log": 1, TOPIC: 1},
    )
    for name, plant, seen_by in (
        (
            "remember decisions for ever",
            remember_decisions_for_ever,
            frozenset({"AllowedIsServed", "DeniedIsNotWritten"}),
        ),
        (
            "read after a reconnect only",
            read_after_a_reconnect_only,
            frozenset({"BrokersFollowTheAcls", "AllowedIsServed", "DeniedIsNotWritten"}),
        ),
    )
)  # fmt: skip
