"""The order of turns: deadlines, fairness between a flood and a trickle, back-off, intervals."""

from __future__ import annotations

import pytest

from headwater_tier.service.schedule import (
    BACK_OFF_S,
    IDLE_AFTER_S,
    LOOK_S_MAX,
    LOOK_S_MIN,
    TURN_BYTES,
    Schedule,
    TopicSchedule,
)


def followed(**intervals: float) -> Schedule:
    schedule = Schedule()
    schedule.follow(intervals)
    return schedule


def test_a_topic_waits_for_its_interval_from_its_oldest_record_on() -> None:
    schedule = followed(a=3.0)
    schedule.topics["a"].saw(0, now=10.0)
    schedule.topics["a"].saw(5, now=11.0)
    assert schedule.topics["a"].deadline == 13.0  # the record came after the look at 10
    assert schedule.due(12.9) == []
    assert schedule.due(13.0) == ["a"]


def test_a_record_found_after_a_long_pause_counts_from_the_last_pause_only() -> None:
    topic = TopicSchedule(3.0)
    topic.saw(0, now=0.0)
    topic.saw(5, now=1000.0)
    assert topic.seconds_behind(1000.0) == pytest.approx(topic.look_s)


def test_records_that_a_service_finds_at_its_start_are_due() -> None:
    schedule = followed(a=60.0)
    schedule.topics["a"].saw(5, now=1000.0)
    assert schedule.due(1000.0) == ["a"]
    assert schedule.topics["a"].seconds_behind(1000.0) == 60.0


def test_a_topic_that_waits_for_its_turn_is_looked_at_less_often() -> None:
    schedule = followed(a=60.0)
    topic = schedule.topics["a"]
    topic.saw(0, now=0.0)
    assert schedule.to_look_at(topic.look_s) == ["a"]
    topic.saw(1, now=5.0)
    assert schedule.to_look_at(5.0 + LOOK_S_MAX - 0.1) == []
    assert schedule.to_look_at(5.0 + LOOK_S_MAX) == ["a"]


def test_the_earliest_deadline_is_first() -> None:
    schedule = followed(a=10.0, b=3.0)
    for name in "ab":
        schedule.topics[name].saw(0, now=0.0)
        schedule.topics[name].saw(1, now=1.0)
    assert schedule.due(20.0) == ["b", "a"]
    assert schedule.due(20.0, busy=["b"]) == ["a"]


def test_a_turns_bytes_need_no_deadline() -> None:
    schedule = followed(a=3600.0)
    topic = schedule.topics["a"]
    topic.saw(0, now=0.0)
    topic.saw(int(TURN_BYTES / topic.bytes_per_offset), now=1.0)
    assert schedule.due(1.0) == ["a"]


def test_a_flooded_topic_starves_no_trickling_one() -> None:
    schedule = followed(flood=3.0, trickle=3.0)
    flood, trickle = schedule.topics["flood"], schedule.topics["trickle"]
    for topic in (flood, trickle):
        topic.saw(0, now=0.0)
    flood.saw(1_000_000, now=0.1)
    now, waits = 0.1, []
    for turn in range(200):
        if turn % 10 == 0:
            trickle.saw(1, now=now)
        name = next(iter(schedule.due(now)), None)
        if name == "trickle":
            waits.append(trickle.seconds_behind(now))
            trickle.took(1, 100, has_more=False, now=now)
        elif name == "flood":
            flood.took(10_000, 1_000_000, has_more=True, now=now)
        now += 0.2
    assert len(waits) >= 6
    assert max(waits) <= 3.0 + 2 * 0.2 + trickle.look_s


def test_two_floods_take_turns() -> None:
    schedule = followed(a=3.0, b=3.0)
    for name in "ab":
        schedule.topics[name].saw(0, now=0.0)
        schedule.topics[name].saw(10**9, now=0.1)
    taken = []
    for step in range(6):
        now = 1.0 + step
        name = schedule.due(now)[0]
        taken.append(name)
        schedule.topics[name].took(1000, 1000, has_more=True, now=now)
    assert taken == ["a", "b"] * 3


def test_failures_back_off_and_success_ends_it() -> None:
    topic = TopicSchedule(3.0)
    topic.saw(0, now=0.0)
    topic.saw(1, now=1.0)
    for pause in (*BACK_OFF_S, BACK_OFF_S[-1]):
        topic.failed(now=100.0)
        assert topic.retry_at == 100.0 + pause
        assert not topic.is_due(100.0 + pause - 0.01)
        assert topic.is_due(100.0 + pause)
    topic.committed(0.5, now=110.0)
    assert (topic.failures, topic.achieved_s) == (0, 109.5)


def test_a_failed_commit_gives_its_records_their_age_back() -> None:
    topic = TopicSchedule(3.0)
    topic.saw(0, now=0.0)
    topic.saw(9, now=1.0)
    since = topic.took(9, 900, has_more=False, now=4.0)
    assert topic.pending_since is None
    topic.saw(2, now=5.0)
    topic.failed(now=6.0, since=since)
    assert topic.pending_since == since


def test_the_size_of_an_offset_is_measured() -> None:
    topic = TopicSchedule(3.0)
    topic.took(1000, 100_000, has_more=False, now=1.0)
    assert topic.bytes_per_offset == 100.0
    topic.took(1000, 200_000, has_more=False, now=2.0)
    assert 100.0 < topic.bytes_per_offset < 200.0


def test_idle_topics_are_looked_at_less_often() -> None:
    topic = TopicSchedule(3.0)
    topic.saw(1, now=0.0)
    topic.saw(0, now=1.0)
    busy = topic.look_s
    topic.saw(0, now=2.0 + IDLE_AFTER_S)
    assert (busy, topic.look_s) == (1.0, 3.0)
    assert TopicSchedule(0.001).look_s == LOOK_S_MIN


def test_draining_waits_for_no_deadline() -> None:
    schedule = followed(a=3600.0)
    schedule.topics["a"].saw(0, now=0.0)
    schedule.topics["a"].saw(1, now=1.0)
    assert schedule.due(1.0) == []
    schedule.is_draining = True
    assert schedule.due(1.0) == ["a"]


def test_the_pause_ends_at_the_next_look_or_deadline() -> None:
    schedule = followed(a=3.0)
    schedule.topics["a"].saw(0, now=10.0)
    assert schedule.pause_s(10.0, most=0.5) == 0.5
    assert schedule.pause_s(12.9, most=0.5) == pytest.approx(0.1)
    assert schedule.pause_s(99.0, most=0.5) == 0.0
    assert schedule.pause_s(99.0, most=0.5, busy=["a"]) == 0.5


def test_topics_that_are_gone_are_forgotten() -> None:
    schedule = followed(a=3.0, b=3.0)
    schedule.follow({"b": 7.0})
    assert {n: t.interval_s for n, t in schedule.topics.items()} == {"b": 7.0}
