"""The moves of replicas when brokers are drained or added. Pure.

A replica that moves keeps its place in the list of replicas: the preferred leader stays the first.
Each replica goes to the broker that is not one of the partition's, in a rack without a replica of
the partition if there is one, with the fewest replicas (of preferred leaders: the fewest leaders).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from headwater.client.values import Broker, TopicDescription, TopicPartition
from headwater.errors import UsageError

Replicas = dict[TopicPartition, tuple[int, ...]]
NAMES_SHOWN_MAX = 5


def replicas_of(topics: Iterable[TopicDescription]) -> Replicas:
    """The replicas of every partition, the preferred leader first."""
    return {TopicPartition(t.name, p.partition): p.replicas for t in topics for p in t.partitions}


def partitions_on(replicas: Replicas, broker_ids: Collection[int]) -> list[TopicPartition]:
    """The partitions that have a replica on one of these brokers."""
    return sorted(tp for tp, ids in replicas.items() if not set(ids).isdisjoint(broker_ids))


def check_enough_brokers(
    replicas: Replicas, targets: Collection[int], draining: Collection[int]
) -> None:
    """Raise UsageError when a partition has more replicas than brokers would be left for it.

    A broker that has a replica and does not run is left too; it is just no target.
    """
    too_many: dict[str, int] = {}
    for tp, ids in replicas.items():
        if len(ids) > len(set(targets).union(ids).difference(draining)):
            too_many[tp.topic] = max(len(ids), too_many.get(tp.topic, 0))
    if not too_many:
        return
    named = [f"{topic} ({factor})" for topic, factor in sorted(too_many.items())]
    shown = ", ".join(named[:NAMES_SHOWN_MAX]) + (", ..." if len(named) > NAMES_SHOWN_MAX else "")
    raise UsageError(
        f"{len(targets)} running brokers would be left, fewer than the replication factor of"
        f" {shown}: add a broker first (headwater cluster add), or lower these factors (headwater"
        " reassign)"
    )


def drain_moves(
    replicas: Replicas, brokers: Sequence[Broker], draining: Collection[int]
) -> Replicas:
    """The new replicas of every partition that has one on a broker of `draining`.

    `brokers` are those that run. Raises UsageError when too few of them would be left.
    """
    targets = [b for b in brokers if b.node_id not in draining]
    check_enough_brokers(replicas, [b.node_id for b in targets], draining)
    loads = _Loads(replicas, targets)
    moves: Replicas = {}
    for tp in partitions_on(replicas, draining):
        ids = list(replicas[tp])
        for place, broker_id in enumerate(ids):
            if broker_id in draining:
                ids[place] = loads.best_target(ids, place)
                loads.move(broker_id, ids[place], is_leader=place == 0)
        moves[tp] = tuple(ids)
    return moves


def rebalance_moves(replicas: Replicas, brokers: Sequence[Broker]) -> Replicas:
    """The fewest moves after which no broker has two replicas more than another one.

    A move that would put two replicas of a partition into one rack, where the partition's replicas
    are in different racks, is not made. Partitions with a replica on a broker that does not run
    keep their replicas.
    """
    live = {b.node_id for b in brokers}
    loads = _Loads(replicas, brokers)
    now = {tp: list(ids) for tp, ids in sorted(replicas.items()) if live.issuperset(ids)}
    moved: set[TopicPartition] = set()
    while (found := _next_move(now, loads)) is not None:
        tp, place, target = found
        loads.move(now[tp][place], target, is_leader=place == 0)
        now[tp][place] = target
        moved.add(tp)
    return {tp: tuple(now[tp]) for tp in sorted(moved)}


def _next_move(
    now: Mapping[TopicPartition, list[int]], loads: _Loads
) -> tuple[TopicPartition, int, int] | None:
    """A replica of a broker that has two more than another, and the broker that gets it."""
    order = loads.by_load()
    for giver in reversed(order):
        for taker in order:
            if loads.replicas[giver] - loads.replicas[taker] < 2:
                break
            candidates = [
                (tp, ids.index(giver))
                for tp, ids in now.items()
                if giver in ids and taker not in ids and loads.keeps_racks(ids, giver, taker)
            ]
            if candidates:
                wants_leader = loads.leaders[giver] > loads.leaders[taker] + 1
                tp, place = min(candidates, key=lambda c: ((c[1] == 0) != wants_leader, c))
                return tp, place, taker
    return None


class _Loads:
    """Replicas and preferred leaders of each broker that may get more."""

    def __init__(self, replicas: Replicas, brokers: Sequence[Broker]) -> None:
        self._racks = {b.node_id: b.rack for b in brokers}
        self.replicas: Counter[int] = Counter()
        self.leaders: Counter[int] = Counter()
        for ids in replicas.values():
            self.replicas.update(ids)
            self.leaders.update(ids[:1])

    def by_load(self) -> list[int]:
        """The brokers, those with the fewest replicas first."""
        return sorted(self._racks, key=lambda i: (self.replicas[i], i))

    def best_target(self, ids: Sequence[int], place: int) -> int:
        """The broker for the replica at `place`. One exists: see `check_enough_brokers`."""
        used = {self._racks.get(i) for at, i in enumerate(ids) if at != place}
        is_leader = place == 0

        def cost(broker_id: int) -> tuple[bool, int, int, int]:
            rack = self._racks[broker_id]
            leaders = self.leaders[broker_id] if is_leader else 0
            return rack is not None and rack in used, leaders, self.replicas[broker_id], broker_id

        return min((i for i in self._racks if i not in ids), key=cost)

    def keeps_racks(self, ids: Sequence[int], giver: int, taker: int) -> bool:
        """True if the move lowers the number of the partition's racks not."""
        before = {self._racks[i] for i in ids}
        after = {self._racks[taker if i == giver else i] for i in ids}
        return len(after) >= len(before)

    def move(self, giver: int, taker: int, *, is_leader: bool) -> None:
        """Count a replica that moves."""
        self.replicas[giver] -= 1
        self.replicas[taker] += 1
        if is_leader:
            self.leaders[giver] -= 1
            self.leaders[taker] += 1
