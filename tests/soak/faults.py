"""The table of faults: how each is injected and healed, and what it needs beforehand.

`inject` chooses its victims among the parts that no other fault holds, or raises NotNowError. The
healing that it returns must work whatever else happens, as two faults may overlap.
"""

from __future__ import annotations

import errno
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from soak.network import CLIENTS_HOST, ZOOKEEPER_HOST, host_of
from soak.world import ZOOKEEPER_PART, NotNowError, World

DRAIN_WAIT_S = 15.0
STRAND_S = 1.0
SLOW_MS = (2, 25)
FOR_EVER_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Injected:
    """An injected fault."""

    target: str
    parts: frozenset[int | str]
    """Brokers and parts that no other fault may use meanwhile."""
    heal: Callable[[], None]
    led: tuple[int, ...] = ()
    """The partitions that a killed broker led: their pause is measured."""
    since: float = 0.0
    """When it was killed (monotonic seconds)."""


@dataclass(frozen=True, slots=True)
class FaultKind:
    """One row of the table. `hold_s`: from inject to heal, chosen evenly."""

    name: str
    what: str
    inject: Callable[[World], Injected]
    hold_s: tuple[float, float] = (0.5, 3.0)
    share: int = 1
    """How often it is in the shuffled deck of faults."""
    needs: str = ""
    """`network`: network namespaces; `mount`: a mount of its own for a broker's data folder."""
    alone: bool = False
    """It starts when all replicas are in sync, and no other fault overlaps it."""
    pause_bar_s: float | None = None
    """The allowed 95th percentile of the write pause."""


def _on(*brokers: int) -> frozenset[int | str]:
    return frozenset(brokers)


def _kill_where(world: World, controller: bool) -> Injected:
    boss, leaders = world.controller(), world.leaders()
    fits = [b for b in set(leaders) if b >= 0 and (b == boss) == controller]
    victim = world.choose(fits)
    led = tuple(p for p, leader in enumerate(leaders) if leader == victim)
    since = time.monotonic()
    world.kill(victim)
    return Injected(
        f"broker {victim}", _on(victim), lambda: world.start(victim), led=led, since=since
    )


def _kill(world: World, count: int) -> Injected:
    free = world.free_brokers()
    if len(free) < count:
        raise NotNowError("too few free brokers")
    victims = world.random.sample(free, count)
    for victim in victims:
        world.kill(victim)
    return Injected(f"brokers {victims}", _on(*victims), lambda: world.start(*victims))


def _drain(world: World) -> Injected:
    victim = world.choose()
    broker = world.cluster.supervised(victim)
    pid = broker.pid
    broker.drain()

    def heal() -> None:
        if pid is not None and not broker.wait_down(pid, DRAIN_WAIT_S):
            world.kill(victim)
        world.start(victim)

    return Injected(f"broker {victim}", _on(victim), heal)


def _pause(world: World, count: int) -> Injected:
    free = world.free_brokers()
    if len(free) < count:
        raise NotNowError("too few free brokers")
    victims = world.random.sample(free, count)
    for victim in victims:
        world.cluster.pause(victim)

    def heal() -> None:
        for victim in victims:
            world.cluster.resume(victim)

    return Injected(f"brokers {victims}", _on(*victims), heal)


def _kill_zookeeper(world: World) -> Injected:
    _zookeeper_is_free(world)
    world.cluster.kill_zookeeper()
    return Injected("ZooKeeper", frozenset({ZOOKEEPER_PART}), world.cluster.restart_zookeeper)


def _pause_zookeeper(world: World) -> Injected:
    _zookeeper_is_free(world)
    world.signal_zookeeper(signal.SIGSTOP)
    return Injected(
        "ZooKeeper",
        frozenset({ZOOKEEPER_PART}),
        lambda: world.signal_zookeeper(signal.SIGCONT),
    )


def _zookeeper_is_free(world: World) -> None:
    if ZOOKEEPER_PART in world.taken:
        raise NotNowError("ZooKeeper is held by another fault")


def _cut(world: World, broker_id: int, cables: list[tuple[int, str]], target: str) -> Injected:
    """Cut these (broker, host) directions. Only `broker_id` counts as taken."""
    network = world.network
    assert network is not None
    for sender, host in cables:
        network.cut(sender, host)

    def heal() -> None:
        for sender, host in cables:
            network.join(sender, host)

    return Injected(target, _on(broker_id), heal)


def _both_ways(one: int, other: int) -> list[tuple[int, str]]:
    return [(one, host_of(other)), (other, host_of(one))]


def _cut_pair(world: World) -> Injected:
    one = world.choose()
    other = world.random.choice([b for b in world.brokers if b != one])
    return _cut(world, one, _both_ways(one, other), f"brokers {one} | {other}")


def _cut_one_way(world: World) -> Injected:
    one = world.choose()
    other = world.random.choice([b for b in world.brokers if b != one])
    return _cut(world, one, [(one, host_of(other))], f"broker {one} -> {other}")


def _isolate(world: World) -> Injected:
    one = world.choose()
    cables = [c for other in world.brokers if other != one for c in _both_ways(one, other)]
    return _cut(world, one, cables, f"broker {one} | its peers")


def _cut_zookeeper(world: World) -> Injected:
    one = world.choose()
    return _cut(world, one, [(one, ZOOKEEPER_HOST)], f"broker {one} | ZooKeeper")


def _unplug(world: World) -> Injected:
    one = world.choose()
    cables = [c for other in world.brokers if other != one for c in _both_ways(one, other)]
    cables += [(one, ZOOKEEPER_HOST), (one, CLIENTS_HOST)]
    return _cut(world, one, cables, f"broker {one} | everybody")


def _strand_leader(world: World) -> Injected:
    """Cut a leader from its followers for a while, then kill it: records that only it has must not
    be acknowledged."""
    victim = world.choose([b for b in world.leaders() if b >= 0])
    others = [b for b in world.brokers if b != victim]
    network = world.network
    assert network is not None
    cables = [(other, host_of(victim)) for other in others]
    for sender, host in cables:
        network.cut(sender, host)
    time.sleep(STRAND_S)
    world.kill(victim)
    for sender, host in cables:
        network.join(sender, host)
    return Injected(f"broker {victim}", _on(victim), lambda: world.start(victim))


def _fill_disk(world: World) -> Injected:
    victim = world.choose(sorted(world.mounted))
    world.fill_disk(victim)

    def heal() -> None:
        world.empty_disk(victim)
        world.kill(victim)
        world.start(victim)

    return Injected(f"broker {victim}", _on(victim), heal)


def _fail_disk(world: World) -> Injected:
    victim = world.choose()
    world.trouble_disk(victim, {"errno": errno.EIO})

    def heal() -> None:
        world.trouble_disk(victim, None)
        world.kill(victim)
        world.start(victim)

    return Injected(f"broker {victim}", _on(victim), heal)


def _slow_disk(world: World) -> Injected:
    victim = world.choose()
    delay_ms = world.random.randint(*SLOW_MS)
    world.trouble_disk(victim, {"delay_ms": delay_ms})
    return Injected(
        f"broker {victim}, {delay_ms} ms",
        _on(victim),
        lambda: world.trouble_disk(victim, None),
    )


def _hang_loop(world: World) -> Injected:
    victim = world.choose()
    world.trouble_disk(victim, {"delay_ms": FOR_EVER_MS})
    return Injected(f"broker {victim}", _on(victim), lambda: world.trouble_disk(victim, None))


def _wipe_disk(world: World) -> Injected:
    victim = world.choose()
    world.kill(victim)
    world.wipe(victim)
    return Injected(f"broker {victim}", _on(victim), lambda: world.start(victim))


def _elect(world: World) -> Injected:
    world.ask(lambda admin: admin.elect_leaders("preferred"))
    return Injected("all partitions", frozenset(), lambda: None)


KINDS: tuple[FaultKind, ...] = (
    FaultKind(
        "kill-leader",
        "SIGKILL of a leader that is not the controller",
        lambda world: _kill_where(world, controller=False),
        hold_s=(0.0, 1.0),
        share=5,
        alone=True,
        pause_bar_s=1.0,
    ),
    FaultKind(
        "kill-leading-controller",
        "SIGKILL of a leader that is the controller too",
        lambda world: _kill_where(world, controller=True),
        hold_s=(0.0, 1.0),
        share=5,
        alone=True,
        pause_bar_s=2.0,
    ),
    FaultKind("kill-one", "SIGKILL of any broker", lambda w: _kill(w, 1), (0.1, 4.0), 2),
    FaultKind("kill-two", "SIGKILL of two brokers at once", lambda w: _kill(w, 2), (0.1, 2.0), 2),
    FaultKind("kill-all", "SIGKILL of all brokers at once", lambda w: _kill(w, 3), (0.1, 1.0)),
    FaultKind("drain", "a controlled shutdown and a start", _drain, (0.5, 2.0), 2),
    FaultKind("pause-one", "SIGSTOP of a broker", lambda w: _pause(w, 1), (0.2, 2.0), 2),
    FaultKind(
        "pause-long", "SIGSTOP for longer than its session", lambda w: _pause(w, 1), (4.5, 6.5)
    ),
    FaultKind("pause-two", "SIGSTOP of two brokers", lambda w: _pause(w, 2), (0.5, 5.0)),
    FaultKind("zookeeper-restart", "SIGKILL of ZooKeeper", _kill_zookeeper, (0.0, 1.0), 2),
    FaultKind("zookeeper-loss", "no ZooKeeper for longer than sessions", _kill_zookeeper, (5, 7)),
    FaultKind("zookeeper-pause", "SIGSTOP of ZooKeeper", _pause_zookeeper, (0.5, 6.0)),
    FaultKind("cut-pair", "no network between two brokers", _cut_pair, (0.5, 5.0), 2, "network"),
    FaultKind(
        "cut-one-way", "packets lost in one direction", _cut_one_way, (0.5, 5.0), 1, "network"
    ),
    FaultKind("cut-peers", "a broker without its peers", _isolate, (0.5, 6.0), 2, "network"),
    FaultKind(
        "cut-zookeeper", "a broker without ZooKeeper", _cut_zookeeper, (1.0, 7.0), 2, "network"
    ),
    FaultKind("unplug", "a broker without any network", _unplug, (0.5, 7.0), 2, "network"),
    FaultKind(
        "strand-leader",
        "a leader without followers, then killed",
        _strand_leader,
        (0.0, 1.0),
        2,
        "network",
    ),
    FaultKind("disk-full", "ENOSPC from a full mount", _fill_disk, (0.5, 3.0), 2, "mount"),
    FaultKind("disk-fails", "EIO from every write", _fail_disk, (0.5, 3.0), 2),
    FaultKind("disk-slow", "every write and fsync takes longer", _slow_disk, (1.0, 5.0), 2),
    FaultKind(
        "loop-hangs",
        "a broker's loop stands still, at times for longer than its watchdog allows",
        _hang_loop,
        (0.5, 13.0),
    ),
    FaultKind("disk-wiped", "SIGKILL, and an empty disk", _wipe_disk, (0.0, 1.0), 2, alone=True),
    FaultKind("elect", "an election of preferred leaders", _elect, (0.0, 0.5), 2),
)
