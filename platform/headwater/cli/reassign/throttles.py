"""The throttles of a reassignment, as Kafka's tool sets and removes them (KIP-73). Pure.

Leaders are slowed for every replica that a partition has before the move, followers for those that
come; the rates are set on every broker that takes part. A topic has one list of each for all of its
partitions: other moves of it that are under way stay in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headwater.cli.reassign.plan import Folders, Plan
from headwater.client.values import PartitionReassignment, TopicPartition

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
FOLDERS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_LIST = "leader.replication.throttled.replicas"
FOLLOWER_LIST = "follower.replication.throttled.replicas"

Settings = dict[str, str | None]
Moves = Mapping[TopicPartition, PartitionReassignment]


class Throttles(NamedTuple):
    """Configs to set, by broker id and by topic; a value of None removes."""

    brokers: dict[int, Settings]
    topics: dict[str, Settings]


def throttles(
    plan: Plan,
    now: Mapping[TopicPartition, Sequence[int]],
    folders: Folders,
    under_way: Moves,
    *,
    rate: int | None,
    folders_rate: int | None,
) -> Throttles:
    """What slows the moves of `plan`, in bytes per second; None: not slowed. `under_way`: those
    that there are already."""
    found = Throttles({}, {})
    if rate is not None:
        leaders: dict[str, list[str]] = {}
        followers: dict[str, list[str]] = {}
        for (topic, index), (before, coming) in sorted(_moving(plan, now, under_way).items()):
            leaders.setdefault(topic, []).extend(f"{index}:{b}" for b in before)
            followers.setdefault(topic, []).extend(f"{index}:{b}" for b in coming)
            for broker_id in (*before, *coming):
                settings = found.brokers.setdefault(broker_id, {})
                settings[LEADER_RATE] = settings[FOLLOWER_RATE] = str(rate)
        for topic, listed in leaders.items():
            found.topics[topic] = {
                LEADER_LIST: ",".join(listed),
                FOLLOWER_LIST: ",".join(followers[topic]),
            }
    if folders_rate is not None:
        for broker_id, _ in folders:
            found.brokers.setdefault(broker_id, {})[FOLDERS_RATE] = str(folders_rate)
    return found


def _moving(
    plan: Plan, now: Mapping[TopicPartition, Sequence[int]], under_way: Moves
) -> dict[TopicPartition, tuple[Sequence[int], Sequence[int]]]:
    """(replicas before, replicas that come) of what moves of the plan's topics once it is executed.
    Of a partition that moves already, those that come are no source yet."""
    topics = {tp.topic for tp in plan}
    found: dict[TopicPartition, tuple[Sequence[int], Sequence[int]]] = {}
    for tp, move in under_way.items():
        if tp.topic in topics:
            stay = [b for b in move.replicas if b not in move.adding_replicas]
            found[tp] = stay, move.adding_replicas
    for tp, target in plan.items():
        before = found[tp][0] if tp in found else now.get(tp, ())
        if set(target) == set(before):
            found.pop(tp, None)
        else:
            found[tp] = before, [b for b in target if b not in before]
    return found


def no_throttles(topics: Iterable[str], broker_ids: Iterable[int]) -> Throttles:
    """What removes them from these."""
    rates: Settings = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE, FOLDERS_RATE))
    lists: Settings = dict.fromkeys((LEADER_LIST, FOLLOWER_LIST))
    return Throttles({b: dict(rates) for b in broker_ids}, {t: dict(lists) for t in topics})


def listed_brokers(replicas: str | None) -> set[int]:
    """The brokers in a topic's list of throttled replicas."""
    pairs = (item.partition(":") for item in (replicas or "").split(","))
    return {int(broker) for _, colon, broker in pairs if colon}
