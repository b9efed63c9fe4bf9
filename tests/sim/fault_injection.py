"""Injects faults into brokers at seeded moments, until the cluster is healed.

Two faults destroy data for good: a power loss (data that is not durable) and a wiped disk. With two
in-sync replicas the cluster must survive one of them at a time, so the next one waits until the
broker of the last one is in sync again. A failed folder counts as a loss while it lasts: it may
hold the only replica with every record, and a broker that returns without it leaves the ISRs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater_broker.metadata import znodes
from sim.broker import Broker
from sim.disk import Disk
from sim.store import HOST as STORE

if TYPE_CHECKING:
    from sim.world import World

CUT_S = (0.3, 8.0)
STALL_S = (0.05, 6.0)
FOLDER_S = (3.0, 10.0)


class FaultInjector:
    """Injects faults until `heal`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.counts: dict[str, int] = {}
        self.damaged: set[int] = set()
        """Brokers that lost data and may not be in sync again."""
        self._is_over = False
        self._swapped: list[tuple[Broker, Broker]] = []

    def begin(self) -> None:
        """Start to inject faults."""
        self._next()

    def _next(self) -> None:
        random = self.world.random
        pause_s = random.expovariate(1 / self.world.plan.fault_pause_s)
        self.world.scheduler.later(pause_s, self._inject)

    def _inject(self) -> None:
        if self._is_over:
            return
        faults, random = self.world.plan.faults, self.world.random
        kind = random.choices(list(faults), list(faults.values()))[0]
        broker = random.choice(self.world.brokers)
        if _STRIKES[kind](self, broker):
            self.counts[kind] = self.counts.get(kind, 0) + 1
        self._next()

    def heal(self) -> None:
        """Inject no more faults, and end those that last."""
        self._is_over = True
        world = self.world
        for first, second in self._swapped:
            _swap(first, second)
        self._swapped.clear()
        for broker in world.brokers:
            broker.disk.kill_after = None
            if broker.disk.failing_prefix:
                self._mend_folder(broker)
            if broker.loop is not None:
                broker.loop.kill_after = None
            if broker.host in world.network.dark:
                broker.power_back()
            if not broker.is_up:
                broker.start_later(world.random.random())
        world.network.mend()

    # -- faults

    def _later(self, low_high: tuple[float, float], work: Callable[[], None]) -> None:
        def end() -> None:
            if not self._is_over:
                work()

        self.world.scheduler.later(self.world.random.uniform(*low_high), end)

    def kill(self, broker: Broker) -> bool:
        """Kill -9; the supervisor restarts the process."""
        if not broker.is_up:
            return False
        broker.kill("kill -9")
        self._later(self.world.plan.down_s, broker.start)
        return True

    def kill_at_event(self, broker: Broker) -> bool:
        """Kill the process between two callbacks, wherever its tasks are."""
        if broker.loop is None:
            return False
        broker.loop.kill_after = self.world.random.randint(0, 300)
        self._later(self.world.plan.down_s, broker.start)
        return True

    def strike_controller(self) -> None:
        """Kill the controller's process between two of its next callbacks; it is restarted."""
        node = self.world.ensemble.tree.find(znodes.CONTROLLER)
        if node is None:
            return
        broker = self.world.brokers[znodes.ControllerClaim.decode(node.data).broker_id - 1]
        if broker.loop is None:
            return
        broker.loop.kill_after = self.world.random.randint(0, 60)
        self.counts["strike"] = self.counts.get("strike", 0) + 1
        self._later(self.world.plan.down_s, broker.start)

    def kill_at_access(self, broker: Broker) -> bool:
        """Kill the process between two accesses to its disk."""
        if not broker.is_up:
            return False
        broker.disk.kill_after = self.world.random.randint(0, 40)
        self._later(self.world.plan.down_s, broker.start)
        return True

    def power(self, broker: Broker) -> bool:
        """Power loss of one host."""
        if not broker.is_up or not self._may_destroy(broker):
            return False
        self.damaged.add(broker.id)
        broker.lose_power()

        def back() -> None:
            broker.power_back()
            broker.start()

        self._later(self.world.plan.down_s, back)
        return True

    def stall(self, broker: Broker) -> bool:
        """Stop the process for a while (SIGSTOP)."""
        if broker.loop is None:
            return False
        seconds = self.world.random.uniform(*STALL_S)
        self.world.note(f"{broker} stands still for {seconds:.3f} s")
        broker.loop.pause(seconds)
        return True

    def folder(self, broker: Broker) -> bool:
        """Make every access to one of its data folders fail."""
        disk = broker.disk
        if not broker.is_up or any(b.disk.failing_prefix for b in self.world.brokers):
            return False
        if not self._are_back(self.damaged - {broker.id}):
            return False
        disk.failing_prefix = self.world.random.choice(broker.folders)
        self.world.note(f"{broker}: {disk.failing_prefix} fails")

        self._later(FOLDER_S, lambda: self._mend_folder(broker))
        return True

    def _mend_folder(self, broker: Broker) -> None:
        """Mend the disk and restart the broker: a failed folder stays offline until then."""
        self.world.note(f"{broker}: {broker.disk.failing_prefix} is mended")
        broker.disk.failing_prefix = None
        if broker.is_up:
            broker.kill("its disk is mended")
        broker.start_later(self.world.random.random())

    def isolate(self, broker: Broker) -> bool:
        """Cut all its links."""
        others = [b.host for b in self.world.brokers if b is not broker]
        others += [c.loop.host for c in self.world.clients]
        if self.world.random.random() < 0.5:
            others.append(STORE)
        self._cut([(broker.host, other) for other in others], both=True)
        return True

    def split(self, broker: Broker) -> bool:
        """Cut one link to another broker, maybe in one direction only."""
        other = self.world.random.choice([b for b in self.world.brokers if b is not broker])
        self._cut([(broker.host, other.host)], both=self.world.random.random() < 0.6)
        return True

    def cut_store(self, broker: Broker) -> bool:
        """Cut its link to ZooKeeper."""
        self._cut([(broker.host, STORE)], both=True)
        return True

    def _cut(self, links: list[tuple[str, str]], *, both: bool) -> None:
        if both:
            links = links + [(b, a) for a, b in links]
        network = self.world.network
        self.world.note(f"cut: {', '.join(f'{a}>{b}' for a, b in links)}")
        network.cut.update(links)

        def mend() -> None:
            self.world.note(f"mended: {links[0][0]}>{links[0][1]}...")
            network.cut.difference_update(links)
            network.pump()

        self._later(CUT_S, mend)

    def slow(self, broker: Broker) -> bool:
        """Delay its messages."""
        self.world.note(f"{broker} is slow")
        self.world.network.slow[broker.host] = self.world.random.uniform(0.02, 0.6)
        self._later(CUT_S, lambda: self.world.network.slow.pop(broker.host, None) and None)
        return True

    def loss(self, broker: Broker) -> bool:
        """Lose messages on all links."""
        self.world.network.loss = self.world.random.uniform(0.01, 0.15)
        self.world.note(f"loss {self.world.network.loss:.2f}")

        def end() -> None:
            self.world.network.loss = 0.0

        self._later(CUT_S, end)
        return True

    def expire(self, broker: Broker) -> bool:
        """Expire its ZooKeeper session."""
        if not broker.is_up or broker.store is None:
            return False
        self.world.note(f"{broker}'s session expires")
        self.world.ensemble.end_session(broker.store.session_id)
        return True

    def clock(self, broker: Broker) -> bool:
        """Step its wall clock."""
        step_ms = int(self.world.random.choice([-1, 1]) * 10 ** self.world.random.uniform(2, 8))
        self.world.note(f"{broker}'s clock is set by {step_ms} ms")
        broker.skew_ms += step_ms
        return True

    def wipe(self, broker: Broker) -> bool:
        """Replace its disk by an empty one."""
        if not self._may_destroy(broker):
            return False
        self.damaged.add(broker.id)
        self.world.wiped.add(broker.id)
        if broker.is_up:
            broker.kill("its disk is taken")
        self.world.note(f"{broker} gets an empty disk")
        broker.disk = Disk(self.world.scheduler, self.world.random)
        self._later(self.world.plan.down_s, broker.start)
        return True

    def swap(self, broker: Broker) -> bool:
        """Exchange the disks of two brokers for a while."""
        other = self.world.random.choice([b for b in self.world.brokers if b is not broker])
        if self._swapped or not (broker.disk.is_named and other.disk.is_named):
            return False  # a broker would take an empty disk for its own
        self._exchange(broker, other)
        self._swapped.append((broker, other))

        def back() -> None:
            if self._swapped:
                self._swapped.clear()
                self._exchange(broker, other)

        self._later(CUT_S, back)
        return True

    def _exchange(self, first: Broker, second: Broker) -> None:
        _swap(first, second)
        self._later(self.world.plan.down_s, first.start)
        self._later(self.world.plan.down_s, second.start)

    def lie(self, broker: Broker) -> bool:
        """Make its disk lose every fsync from now on, until a power loss shows it."""
        self.world.note(f"{broker}'s disk begins to lie")
        broker.disk.loses_fsyncs = True
        return True

    def stop(self, broker: Broker) -> bool:
        """Stop it cleanly; the supervisor restarts it."""
        if not broker.is_up:
            return False
        broker.stop()
        return True

    # -- survivable faults

    def _may_destroy(self, broker: Broker) -> bool:
        others = (b for b in self.world.brokers if b is not broker)
        return (
            self._are_back(self.damaged)
            and not self._swapped
            and not any(b.disk.failing_prefix for b in others)
            and self._others_hold_all(broker.id)
        )

    def _are_back(self, damaged: set[int]) -> bool:
        """Whether all of these brokers are in sync again; those that are count as damaged no
        more."""
        back = {broker_id for broker_id in damaged if self._is_in_sync(broker_id)}
        self.damaged -= back
        return back == damaged

    def _others_hold_all(self, broker_id: int) -> bool:
        """Whether other replicas have all records. During a reassignment one replica may be the
        only one in sync."""
        if not self.world.plan.is_administered:
            return True
        for key in self.world.partitions():
            state = self.world.partition_state(znodes.state_path(*key))
            if state is None or not {*state[0].isr, *state[0].elr} - {broker_id}:
                return False
        return True

    def _is_in_sync(self, broker_id: int) -> bool:
        for key in self.world.partitions():
            state = self.world.partition_state(znodes.state_path(*key))
            if state is None or broker_id in {*state[1]} - {*state[0].isr}:
                return False
        broker = self.world.brokers[broker_id - 1]
        return broker.node is not None and broker.node.is_ready


def _swap(first: Broker, second: Broker) -> None:
    for broker in (first, second):
        if broker.is_up:
            broker.kill("its disk is taken")
    first.world.note(f"{first} and {second} exchange disks")
    first.disk, second.disk = second.disk, first.disk


_STRIKES: dict[str, Callable[[FaultInjector, Broker], bool]] = {
    name: getattr(FaultInjector, name)
    for name in (
        "kill", "kill_at_event", "kill_at_access", "power", "stall", "isolate", "split",
        "cut_store", "slow", "loss", "expire", "clock", "wipe", "swap", "lie", "stop", "folder",
    )
}  # fmt: skip
