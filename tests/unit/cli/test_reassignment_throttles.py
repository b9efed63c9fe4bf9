"""The throttles of a reassignment, as Kafka's tool sets them."""

from __future__ import annotations

from headwater.cli.reassign.throttles import listed_brokers, no_throttles, throttles
from headwater.client.values import PartitionReassignment, TopicPartition

RATE = {"leader.replication.throttled.rate": "7", "follower.replication.throttled.rate": "7"}
A, B, C = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def test_leaders_are_slowed_for_all_that_were_and_followers_for_those_that_come() -> None:
    plan = {A: (2, 3), B: (1, 2), C: (1,)}
    now = {A: (1, 2), B: (2, 1), C: (1,)}
    found = throttles(plan, now, {(1, C): "/b"}, {}, rate=7, log_dirs_rate=9)
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
    found = throttles({A: (2,)}, {A: (1,)}, {(1, A): "/b"}, {}, rate=None, log_dirs_rate=None)
    assert (found.brokers, found.topics) == ({}, {})
    gone = no_throttles(["t", "u"], [1, 2])
    assert set(gone.brokers) == {1, 2} and set(gone.topics) == {"t", "u"}
    settings = [*gone.brokers.values(), *gone.topics.values()]
    assert all(value is None for row in settings for value in row.values())
    assert [len(row) for row in settings] == [3, 3, 2, 2]


def lists(leaders: str, followers: str) -> dict[str, str]:
    return {
        "leader.replication.throttled.replicas": leaders,
        "follower.replication.throttled.replicas": followers,
    }


def test_moves_of_the_topic_that_are_under_way_stay_in_its_lists() -> None:
    """A second plan for a topic let the moves of the first one go at full speed."""
    under_way = {
        B: PartitionReassignment((3, 1, 2), (3,), (2,)),
        C: PartitionReassignment((4, 1), (4,), (1,)),
    }
    now = {A: (1, 2), B: (3, 1, 2), C: (4, 1)}
    found = throttles({A: (2, 5)}, now, {}, under_way, rate=7, log_dirs_rate=None)
    assert found.topics == {"t": lists("0:1,0:2,1:1,1:2", "0:5,1:3")}
    assert found.brokers == dict.fromkeys((1, 2, 3, 5), RATE)


def test_a_move_whose_rate_changes_slows_who_it_slowed_before() -> None:
    """Executed again, a plan met its own new replicas, and left no follower slowed."""
    under_way = {A: PartitionReassignment((3, 4, 1, 2), (3, 4), (1, 2))}
    now = {A: (3, 4, 1, 2)}
    again = throttles({A: (3, 4)}, now, {}, under_way, rate=7, log_dirs_rate=None)
    assert again.topics == {"t": lists("0:1,0:2", "0:3,0:4")}
    wider = throttles({A: (3, 4, 1, 2)}, now, {}, under_way, rate=7, log_dirs_rate=None)
    assert wider.topics == again.topics, "all of them are kept, and two still come"
    back = throttles({A: (2, 1)}, now, {}, under_way, rate=7, log_dirs_rate=None)
    assert (back.topics, back.brokers) == ({}, {})


def test_the_brokers_that_a_list_names() -> None:
    assert listed_brokers("0:1,0:2,11:1") == {1, 2}
    assert listed_brokers("*") == listed_brokers("") == listed_brokers(None) == set()
