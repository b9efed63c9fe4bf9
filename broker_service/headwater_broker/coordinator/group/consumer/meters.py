"""Counters of consumer groups on this broker: rebalances, their time, fenced members."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class ConsumerGroupMeters:
    """Totals since the broker began, over all of its shards."""

    rebalances: int = 0
    """Target assignments put in place."""
    settled: int = 0
    """Rebalances after which every member had all of its part."""
    settling_ms: float = 0.0
    """How long these took in all, from the change that caused them."""
    settling_max_ms: float = 0.0
    fenced: dict[str, int] = field(default_factory=dict)
    """Members that the coordinator put out, by reason: "session", "rebalance"."""
    refused_epochs: int = 0
    """Heartbeats with an epoch that is not the member's."""
    _began: dict[str, float] = field(default_factory=dict)

    def change_began(self, group_id: str, steady_ms: float) -> None:
        """A group's epoch rises, perhaps during a rebalance."""
        self._began.setdefault(group_id, steady_ms)

    def has_settled(self, group_id: str, steady_ms: float) -> None:
        """Every member of the group has its part."""
        began = self._began.pop(group_id, None)
        if began is not None:
            self.settled += 1
            self.settling_ms += steady_ms - began
            self.settling_max_ms = max(self.settling_max_ms, steady_ms - began)

    def forget(self, group_id: str) -> None:
        """The group has no members."""
        self._began.pop(group_id, None)

    def has_fenced(self, reason: str) -> None:
        """A member was put out."""
        self.fenced[reason] = self.fenced.get(reason, 0) + 1
