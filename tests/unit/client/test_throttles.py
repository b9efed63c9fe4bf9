"""The throttles of a reassignment, as Kafka's tool would set them."""

from __future__ import annotations

from headwater.client.throttles import no_throttles, throttles
from headwater.client.values import TopicPartition

RATE = {"leader.replication.throttled.rate": "7", "follower.replication.throttled.rate": "7"}
A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def test_leaders_are_slowed_for_all_that_were_and_followers_for_those_that_come() -> None:
    plan = {A: (2, 3), B: (1, 2), C: (1,)}
    now = {A: (1, 2), B: (2, 1), C: (1,)}
    found = throttles(plan, now, {(1, C): "/b"}, rate=7, folders_rate=9)
    assert found.topics == {
        "t": {
            "leader.replication.throttled.replicas": "0:1,0:2",
            "follower.replication.throttled.replicas": "0:3",
        }
    }
    assert found.brokers == {
        1: {**RATE, "replica.alter.log.dirs.io.max.bytes.per.second": "9"},
        2: RATE,
        3: RATE,
    }


def test_nothing_is_slowed_unless_asked_and_all_is_removed() -> None:
    found = throttles({A: (2,)}, {A: (1,)}, {(1, A): "/b"}, rate=None, folders_rate=None)
    assert (found.brokers, found.topics) == ({}, {})
    gone = no_throttles({A: (2,), C: (1,)}, [1, 2])
    assert set(gone.brokers) == {1, 2} and set(gone.topics) == {"t", "u"}
    settings = [*gone.brokers.values(), *gone.topics.values()]
    assert all(value is None for row in settings for value in row.values())
    assert [len(row) for row in settings] == [3, 3, 2, 2]
