"""Worlds with a rolling upgrade under load, and a rolling downgrade after it."""

from __future__ import annotations

from headwater.ports.metadata_store import Node
from headwater_broker.metadata import znodes
from sim.broker import Broker
from sim.invariants import ViolationError
from sim.plan import Plan
from sim.releases import CarelessRelease, NextRelease, RaisedRelease, Release, is_raised
from sim.world import World

STEP_S = 90.0
"""Limit on the time until the cluster is whole after a step."""
CARELESS_STEP_S = 30.0
"""The limit for a cluster that will never be whole."""
ACKS_PER_STEP = 20
LOOK_EVERY = 50
"""Turns between two checks."""
DOWN_S = 0.5
ALL_OLD_S = 15.0
"""Long enough for old brokers to try many elections."""

PLAN = Plan(
    produce_pause_s=0.1,
    faults={},
    topics={"log": 2},
    topic_configs={"min.insync.replicas": "2", "retention.ms": "-1"},
)


class RollingWorld(World):
    """Upgrade to the next release, then downgrade; at every step the controller comes first."""

    step_s = STEP_S

    def __init__(self, seed: int, plan: Plan | None = None) -> None:
        super().__init__(seed, plan)
        self.next = self.next_release()

    def next_release(self) -> Release:
        """The release to upgrade to."""
        return NextRelease()

    def work(self) -> None:
        """Upgrade, then downgrade. Every step waits until the cluster is whole and producers go
        on."""
        self._settle("start")
        for release in (self.next, self.today):
            self._roll_all(release)
        self._count()

    def _roll_all(self, release: Release) -> None:
        while self.violation is None and any(b.release is not release for b in self.brokers):
            self._roll(self._to_roll(release), release)

    def _roll(self, broker: Broker, release: Release) -> None:
        self._restart(broker, release)
        self._settle(f"{broker} to {release.name}")

    def _to_roll(self, release: Release) -> Broker:
        rest = [b for b in self.brokers if b.release is not release]
        return next((b for b in rest if b.id == self._controller()), rest[0])

    def _controller(self) -> int:
        node = self.ensemble.tree.get(znodes.CONTROLLER)
        return znodes.ControllerClaim.decode(node.data).broker_id

    def _restart(self, broker: Broker, release: Release) -> None:
        broker.release = release
        if self.random.random() < 0.5:
            broker.stop()
            self.until(self.step_s, lambda: not broker.is_up)
        else:
            broker.kill("kill -9")
            broker.start_later(DOWN_S)

    def _settle(self, step: str) -> None:
        acked = self._acks()
        seen = 0

        def done() -> bool:
            nonlocal seen
            seen += 1
            is_due = seen % LOOK_EVERY == 0 and self._acks() >= acked + ACKS_PER_STEP
            return is_due and not self.not_joined()

        self.until(self.step_s, done)
        if self.violation is not None:
            return
        missing = self.not_joined()
        if missing or self._acks() < acked + ACKS_PER_STEP:
            text = f"{self.step_s:.0f} s after {step}: {missing or 'producers stand still'}"
            self.broken(ViolationError("RollsOn", text))
            return
        self.note(f"whole after {step}")
        self._add("steps", 1)
        by_id = {b.id: b.release.name for b in self.brokers}
        leading = by_id.pop(self._controller())
        for name in by_id.values():
            self._add(f"{leading} leads {name}", 1)

    def _add(self, what: str, times: int) -> None:
        counts = self.injector.counts
        counts[what] = counts.get(what, 0) + times

    def _count(self) -> None:
        for (caller, callee, version), times in self.control.spoken.items():
            self._add(f"{caller} to {callee} in format {version}", times)
        for release in (self.today, self.next):
            for what, times in release.took.items():
                self._add(f"{release.name} took {what}", times)

    def _acks(self) -> int:
        return sum(len(ledger.acked) for ledger in self.ledgers.values())


class CarelessWorld(RollingWorld):
    """Upgrade to a release whose messages old brokers cannot read."""

    step_s = CARELESS_STEP_S

    def next_release(self) -> Release:
        return CarelessRelease()


class RaisedWorld(RollingWorld):
    """Upgrade to a release that raises the version of a node once all brokers run it; then
    downgrade too far. Old brokers follow a newer controller, but none of them becomes the
    controller, or overwrites nodes that it cannot read. With one newer broker the cluster is whole
    again."""

    next: RaisedRelease

    def next_release(self) -> Release:
        return RaisedRelease()

    def understood(self, node: Node) -> Node:
        return self.next.found(node)

    def work(self) -> None:
        self._settle("start")
        self._roll_all(self.next)
        self.next.is_raised = True
        for broker in self.brokers:  # each partition has a leader or a follower that leaves
            self._roll(broker, self.next)
        if not all(map(is_raised, self._records())):
            self.broken(ViolationError("RaisesVersions", f"{self._records()}"))
        first, *others = sorted(self.brokers, key=lambda b: b.id == self._controller())
        self._roll(first, self.today)
        for broker in others:
            self._restart(broker, self.today)
        before = self._records()
        self.until(ALL_OLD_S)
        if self._records() != before:
            self.broken(ViolationError("RefusesNewer", f"{before} became {self._records()}"))
        self._roll(others[-1], self.next)
        self._count()

    def _records(self) -> list[bytes]:
        tree = self.ensemble.tree
        return [tree.get(znodes.state_path(*key)).data for key in self.partitions()]
