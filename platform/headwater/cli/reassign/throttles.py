"""The throttles that a reassignment sets: which replicas, topics and rates (KIP-73). Pure.

Leaders are throttled for every replica that a partition has before the reassignment, followers for
every replica that is added; the rates are set on every broker that takes part. A topic has one list
of throttled replicas for all its partitions, so the lists keep those of its other reassignments.
`throttle_changes` sets them, and removes them when `verify` finds the reassignment complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from headwater.cli.reassign.plan import LogDirs, Plan
from headwater.client.values import PartitionReassignment, TopicPartition

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_LIST = "leader.replication.throttled.replicas"
FOLLOWER_LIST = "follower.replication.throttled.replicas"

Settings = dict[str, str | None]
Moves = Mapping[TopicPartition, PartitionReassignment]


class Throttles(NamedTuple):
    """Configurations to set, by broker id and by topic; None resets a key."""

    brokers: dict[int, Settings]
    topics: dict[str, Settings]


def throttles(
    plan: Plan,
    now: Mapping[TopicPartition, Sequence[int]],
    log_dirs: LogDirs,
    in_progress: Moves,
    *,
    rate: int | None,
    log_dirs_rate: int | None,
) -> Throttles:
    """The throttles for `plan`, with rates in bytes per second (None: no throttle), while
    the reassignments `in_progress` go on."""
    found = Throttles({}, {})
    if rate is not None:
        leaders: dict[str, list[str]] = {}
        followers: dict[str, list[str]] = {}
        for (topic, index), (before, added) in sorted(_moving(plan, now, in_progress).items()):
            leaders.setdefault(topic, []).extend(f"{index}:{b}" for b in before)
            followers.setdefault(topic, []).extend(f"{index}:{b}" for b in added)
            for broker_id in (*before, *added):
                settings = found.brokers.setdefault(broker_id, {})
                settings[LEADER_RATE] = settings[FOLLOWER_RATE] = str(rate)
        for topic, listed in leaders.items():
            found.topics[topic] = {
                LEADER_LIST: ",".join(listed),
                FOLLOWER_LIST: ",".join(followers[topic]),
            }
    if log_dirs_rate is not None:
        for broker_id, _ in log_dirs:
            found.brokers.setdefault(broker_id, {})[LOG_DIRS_RATE] = str(log_dirs_rate)
    return found


def _moving(
    plan: Plan, now: Mapping[TopicPartition, Sequence[int]], in_progress: Moves
) -> dict[TopicPartition, tuple[Sequence[int], Sequence[int]]]:
    """(replicas before, added replicas) of every partition of the plan's topics that is reassigned
    once the plan is executed. Replicas that are being added are no source yet."""
    topics = {tp.topic for tp in plan}
    found: dict[TopicPartition, tuple[Sequence[int], Sequence[int]]] = {}
    for tp, move in in_progress.items():
        if tp.topic in topics:
            before = [b for b in move.replicas if b not in move.adding_replicas]
            found[tp] = before, move.adding_replicas
    for tp, target in plan.items():
        current = found[tp][0] if tp in found else now.get(tp, ())
        if set(target) == set(current):
            found.pop(tp, None)
        else:
            found[tp] = current, [b for b in target if b not in current]
    return found


def no_throttles(topics: Iterable[str], broker_ids: Iterable[int]) -> Throttles:
    """The changes that remove all throttles from these topics and brokers."""
    rates: Settings = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE))
    lists: Settings = dict.fromkeys((LEADER_LIST, FOLLOWER_LIST))
    return Throttles({b: dict(rates) for b in broker_ids}, {t: dict(lists) for t in topics})


def listed_brokers(replicas: str | None) -> set[int]:
    """The brokers in a topic's list of throttled replicas: `0:1,0:2` has 1 and 2."""
    pairs = (item.partition(":") for item in (replicas or "").split(","))
    return {int(broker) for _, colon, broker in pairs if colon}
