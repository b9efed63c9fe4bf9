"""The throttles of a reassignment, as Kafka's tool sets and removes them (KIP-73). Pure.

Leaders are slowed for every replica that a partition has before the move, followers for those that
come; the rates are set on every broker that takes part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headwater.client.plans import Folders, Plan
from headwater.client.values import TopicPartition

LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
FOLDERS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_LIST = "leader.replication.throttled.replicas"
FOLLOWER_LIST = "follower.replication.throttled.replicas"

Settings = dict[str, str | None]


class Throttles(NamedTuple):
    """Configs to set, by broker id and by topic; a value of None removes."""

    brokers: dict[int, Settings]
    topics: dict[str, Settings]


def throttles(
    plan: Plan,
    now: Mapping[TopicPartition, Sequence[int]],
    folders: Folders,
    *,
    rate: int | None,
    folders_rate: int | None,
) -> Throttles:
    """What slows the moves of `plan`, in bytes per second; None: not slowed."""
    found = Throttles({}, {})
    moving = {tp: target for tp, target in plan.items() if set(target) != set(now.get(tp, ()))}
    if rate is not None:
        leaders: dict[str, list[str]] = {}
        followers: dict[str, list[str]] = {}
        for (topic, index), target in sorted(moving.items()):
            before = now.get(TopicPartition(topic, index), ())
            for broker_id in before:
                leaders.setdefault(topic, []).append(f"{index}:{broker_id}")
            for broker_id in target:
                if broker_id not in before:
                    followers.setdefault(topic, []).append(f"{index}:{broker_id}")
            for broker_id in {*before, *target}:
                settings = found.brokers.setdefault(broker_id, {})
                settings[LEADER_RATE] = settings[FOLLOWER_RATE] = str(rate)
        for topic in {tp.topic for tp in moving}:
            found.topics[topic] = {
                LEADER_LIST: ",".join(leaders.get(topic, ())),
                FOLLOWER_LIST: ",".join(followers.get(topic, ())),
            }
    if folders_rate is not None:
        for broker_id, _ in folders:
            found.brokers.setdefault(broker_id, {})[FOLDERS_RATE] = str(folders_rate)
    return found


def no_throttles(plan: Plan, broker_ids: Sequence[int]) -> Throttles:
    """What removes them, on every broker and from every topic of the plan."""
    rates: Settings = dict.fromkeys((LEADER_RATE, FOLLOWER_RATE, FOLDERS_RATE))
    lists: Settings = dict.fromkeys((LEADER_LIST, FOLLOWER_LIST))
    topics = {tp.topic for tp in plan}
    return Throttles({b: dict(rates) for b in broker_ids}, {t: dict(lists) for t in topics})
