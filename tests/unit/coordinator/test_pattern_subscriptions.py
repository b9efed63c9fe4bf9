"""Consumers that subscribe by a pattern (KIP-848), by lists of events."""

from __future__ import annotations

from typing import Any

from headwater.errors import ErrorCode
from unit.coordinator.consumer_group_machine import (
    INTERVAL_MS,
    A,
    ConsumerMachine,
    World,
    numbers,
)


def join(m: ConsumerMachine, member_id: str, regex: str, **more: Any) -> Any:
    """A member whose subscription is a pattern."""
    return m.join(member_id, **{"topics": None, "regex": regex, **more})


def owned(m: ConsumerMachine, member_id: str) -> dict[int, list[int]]:
    return numbers(m.member(member_id).assigned)


def test_a_pattern_stands_for_no_topic_until_it_is_resolved() -> None:
    m = ConsumerMachine(World(a=2, b=1))
    reply = join(m, "one", "a.*")
    assert reply.assignment.topic_partitions == () and reply.heartbeat_interval_ms <= 500
    assert m.resolve() == 1
    m.pass_ms(INTERVAL_MS)
    m.heartbeat("one", 1)
    assert owned(m, "one") == {1: [0, 1]} and m.group.topics == {"a"}
    m.restart()
    assert m.group.topics == {"a"}


def test_a_wrong_pattern_is_refused() -> None:
    assert join(ConsumerMachine(), "one", "a(") == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_topics_that_the_member_may_not_see_are_left_out() -> None:
    m = ConsumerMachine(World(a=1, b=1))
    join(m, "one", ".*", may_describe=lambda name: name == "b")
    m.resolve()
    assert m.group.topics == {"b"}


def test_new_topics_are_found_ten_seconds_apart() -> None:
    m = ConsumerMachine(World(a=1))
    join(m, "one", ".*")
    m.resolve()
    m.pass_ms(INTERVAL_MS)
    m.heartbeat("one", m.member("one").epoch)
    m.topic_changed("b", 1)
    m.heartbeat("one", m.member("one").epoch)
    assert m.resolve() == 0
    for _ in range(10):
        m.pass_ms(1_000)
        m.heartbeat("one", m.member("one").epoch)
    assert m.resolve() == 1
    m.pass_ms(INTERVAL_MS)
    m.heartbeat("one", m.member("one").epoch)
    assert owned(m, "one") == {1: [0], 2: [0]}
    m.restart()


def test_patterns_are_resolved_anew_for_changed_rights() -> None:
    m = ConsumerMachine(World(a=1, b=1), regex_refresh_ms=60_000)
    join(m, "one", ".*")
    m.resolve()
    for _ in range(61):
        m.pass_ms(1_000)
        m.heartbeat("one", m.member("one").epoch, may_describe=lambda name: name == "a")
    assert m.resolve() == 1
    assert m.group.topics == {"a"}


def test_a_resolution_without_a_change_writes_nothing() -> None:
    m = ConsumerMachine(World(a=1))
    join(m, "one", "a")
    m.resolve()
    m.pass_ms(INTERVAL_MS)
    m.heartbeat("one", m.member("one").epoch)
    m.restart()
    before = len(m.records)
    m.heartbeat("one", m.member("one").epoch)
    assert m.resolve() == 1 and len(m.records) == before


def test_a_pattern_that_nobody_has_is_forgotten() -> None:
    m = ConsumerMachine(World(a=1, b=1))
    join(m, "one", "a")
    join(m, "two", "b")
    m.resolve()
    m.heartbeat("two", m.member("two").epoch)
    m.resolve()
    assert set(m.group.regexes) == {"a", "b"}
    m.heartbeat("two", -1)
    assert set(m.group.regexes) == {"a"}
    m.heartbeat("one", m.member("one").epoch, regex="b")
    m.resolve()
    assert set(m.group.regexes) == {"b"}
    m.heartbeat("one", m.member("one").epoch, regex="", topics=frozenset({"a"}))
    assert m.group.regexes == {} and m.group.topics == {"a"}
    m.pass_ms(INTERVAL_MS)
    m.heartbeat("one", m.member("one").epoch)
    assert m.group.targets["one"] == {A: frozenset({0})}
    m.restart()
