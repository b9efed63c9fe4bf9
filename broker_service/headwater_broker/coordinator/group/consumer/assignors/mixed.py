"""Kafka's uniform assignor for members of different subscriptions: a balance over a graph.

Which member may have a partition is a bipartite graph, and the fairest division is the
semi-matching without a cost-reducing path (Harvey et al., "Semi-matchings for bipartite graphs and
load balancing"): no partition could pass to a member with two less, even over members between.
Members and partitions are integers here, as `uniform` numbers them.
"""

from __future__ import annotations

from collections import deque
from heapq import heapify, heappop, heappush, heapreplace

FREE = -1


def balance_mixed(
    owners: list[int],
    subscribers: list[list[int]],
    counts: list[int],
    racked: list[frozenset[int]],
) -> list[int]:
    """The owner of each partition.

    Args:
        owners: by partition, who may keep it, or FREE.
        subscribers: by topic, the members that may have its partitions, ascending.
        counts: by topic, how many partitions it has; they follow each other in `owners`.
        racked: by partition, the members in its racks; empty if no racks are known.
    """
    division = _Division(owners, subscribers, counts, racked)
    order = sorted(range(len(counts)), key=lambda t: (len(subscribers[t]), t))
    for topic in order:
        division.hand_out(topic)
    while sum(division.level(topic) for topic in order):
        pass
    division.shift_along_paths()
    return division.owners()


class _Division:
    """The partitions of each member, and the exchanges that improve them."""

    def __init__(
        self,
        owners: list[int],
        subscribers: list[list[int]],
        counts: list[int],
        racked: list[frozenset[int]],
    ) -> None:
        self._subscribers = subscribers
        self._racked = racked
        member_count = 1 + max((s[-1] for s in subscribers if s), default=-1)
        self._loads = [0] * member_count
        self._topics_of: list[list[int]] = [[] for _ in range(member_count)]
        self._held: list[dict[int, list[int]]] = []
        """By topic, by member: its partitions, ascending."""
        self._free: list[list[int]] = []
        start = 0
        for topic, count in enumerate(counts):
            held: dict[int, list[int]] = {member: [] for member in subscribers[topic]}
            free: list[int] = []
            for partition in range(start, start + count):
                owner = owners[partition]
                (free if owner == FREE else held[owner]).append(partition)
            for member, partitions in held.items():
                self._loads[member] += len(partitions)
                self._topics_of[member].append(topic)
            self._held.append(held)
            self._free.append(free)
            start += count
        self._partition_count = start

    def owners(self) -> list[int]:
        """The owner of each partition."""
        owners = [FREE] * self._partition_count
        for held in self._held:
            for member, partitions in held.items():
                for partition in partitions:
                    owners[partition] = member
        return owners

    def hand_out(self, topic: int) -> None:
        """Give each free partition of a topic to its least loaded subscriber, near ones first."""
        loads, held = self._loads, self._held[topic]
        queue = [(loads[member], member) for member in held]
        heapify(queue)
        for partition in self._free[topic] if queue else ():
            if self._racked:
                near = self._racked[partition]
                member = min(held, key=lambda m: (loads[m], m not in near, m))
            else:
                member = queue[0][1]
                heapreplace(queue, (loads[member] + 1, member))
            loads[member] += 1
            held[member].append(partition)
        self._free[topic] = []

    def level(self, topic: int) -> bool:
        """Move partitions of a topic from who has most to who has least; whether any moved."""
        loads, held = self._loads, self._held[topic]
        least = [(loads[member], member) for member in held]
        most = [(-loads[member], member) for member, own in held.items() if own]
        heapify(least)
        heapify(most)
        has_moved = False
        while most:
            source, target = most[0][1], least[0][1]
            if -most[0][0] != loads[source] or not held[source]:
                heappop(most)
                if held[source]:
                    heappush(most, (-loads[source], source))
            elif least[0][0] != loads[target]:
                heapreplace(least, (loads[target], target))
            elif loads[source] - loads[target] < 2:
                break
            else:
                self._move(topic, source, target)
                has_moved = True
                heapreplace(least, (loads[target], target))
                heappush(most, (-loads[target], target))
        return has_moved

    def shift_along_paths(self) -> None:
        """Take from loaded members, give to others by way of those between, who keep their loads.

        Whom a member without such a path can reach is as even as it can be, for good: later paths
        neither end there (they end two below a smaller load) nor come back out.
        """
        loads = self._loads
        unsettled = set(range(len(loads)))
        while unsettled:
            source = max(unsettled, key=lambda m: (loads[m], -m))
            path, reached = self._path(source)
            for topic, giver, taker in path:
                self._move(topic, giver, taker)
            if not path:
                unsettled -= reached

    def _path(self, source: int) -> tuple[list[tuple[int, int, int]], set[int]]:
        """The shortest chain of (topic, giver, taker) to a member with two less, or [].

        With it, all members that were reached.
        """
        enough = self._loads[source] - 2
        reached_by: dict[int, tuple[int, int]] = {}
        searched_topics: set[int] = set()
        queue = deque([source])
        while queue:
            giver = queue.popleft()
            for topic in self._topics_of[giver]:
                if topic in searched_topics or not self._held[topic][giver]:
                    continue
                searched_topics.add(topic)
                for taker in self._subscribers[topic]:
                    if taker == source or taker in reached_by:
                        continue
                    reached_by[taker] = (topic, giver)
                    if self._loads[taker] <= enough:
                        return self._chain(reached_by, source, taker), set()
                    queue.append(taker)
        return [], {source, *reached_by}

    @staticmethod
    def _chain(
        reached_by: dict[int, tuple[int, int]], source: int, end: int
    ) -> list[tuple[int, int, int]]:
        chain: list[tuple[int, int, int]] = []  # from its end
        while end != source:
            topic, giver = reached_by[end]
            chain.append((topic, giver, end))
            end = giver
        return chain

    def _move(self, topic: int, source: int, target: int) -> None:
        """Move the last partition of `source`; with racks, rather one far from it or near to it."""
        own = self._held[topic][source]
        place = len(own) - 1
        if self._racked:
            racked = self._racked
            place = max(
                range(len(own)),
                key=lambda i: (target in racked[own[i]]) - (source in racked[own[i]]),
            )
        self._held[topic][target].append(own.pop(place))
        self._loads[source] -= 1
        self._loads[target] += 1
