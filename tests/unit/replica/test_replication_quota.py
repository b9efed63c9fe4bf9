"""Replication quotas: rates over windows, throttled replica lists, which replicas wait (KIP-73)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headwater.config.keys import topic_key
from headwater.errors import UsageError
from headwater.testing.clocks import ManualClock
from headwater_broker.api.fetch.read import is_held_back
from headwater_broker.log.log_config import LogConfig
from headwater_broker.quota.rate import SimpleRate, WindowedRate, Windows
from headwater_broker.replica.replication_quota import UNLIMITED, ReplicationQuotas

LEADER_LIST = "leader.replication.throttled.replicas"
FOLLOWER_LIST = "follower.replication.throttled.replicas"
KAFKAS = Windows()


def test_a_rate_counts_the_windows_that_have_not_been_as_empty() -> None:
    rate = WindowedRate(Windows(11, 1.0))
    assert rate.per_second(100.0) == 0.0
    rate.record(1000, 100.0)
    assert rate.per_second(100.0) == rate.per_second(109.9) == 100.0
    assert rate.per_second(110.5) == pytest.approx(1000 / 10.5)
    assert rate.per_second(111.0) == 0.0, "its window is over"


def test_a_steady_stream_is_measured_as_it_is() -> None:
    rate = WindowedRate(Windows(11, 1.0))
    for tenth in range(400):
        rate.record(50, tenth / 10)
    assert rate.per_second(39.9) == pytest.approx(500, rel=0.06)


def test_a_simple_rate_counts_the_time_since_the_oldest_window_alone() -> None:
    rate = SimpleRate(Windows(11, 1.0))
    assert rate.per_second(100.0) == 0.0
    rate.record(1000, 100.0)
    assert rate.per_second(100.0) == rate.per_second(101.0) == 1000.0, "at least one window"
    assert rate.per_second(104.0) == 250.0
    rate.record(1000, 104.0)
    assert rate.per_second(105.0) == 400.0
    assert rate.per_second(111.0) == pytest.approx(1000 / 7), "the first window is over"
    assert rate.per_second(115.0) == 0.0


def test_a_burst_after_a_silence_is_held_back_by_the_rate_itself() -> None:
    """Not let through because eleven windows together could take it."""
    clock, quotas = _quotas()
    clock.advance(60_000)
    quotas.set_rates(1_000, UNLIMITED, UNLIMITED)
    quotas.leader.record(1_000)
    assert not quotas.leader.is_exceeded
    quotas.leader.record(1_000)
    assert quotas.leader.is_exceeded
    clock.advance(1_900)
    assert quotas.leader.is_exceeded
    clock.advance(100)
    assert not quotas.leader.is_exceeded


@pytest.mark.parametrize("step_ms", [20, 250])
def test_what_a_quota_lets_through_over_time_is_its_rate(step_ms: int) -> None:
    clock, quotas = _quotas(Windows(5, 0.5))
    quotas.set_rates(10_000, UNLIMITED, UNLIMITED)
    passed = 0
    for _ in range(20_000 // step_ms):
        clock.advance(step_ms)
        if not quotas.leader.is_exceeded:
            quotas.leader.record(3_000)
            passed += 3_000
            assert passed <= 10_000 * (clock.monotonic() + 0.5) + 3_000, "at any time"
    assert passed / 20.0 == pytest.approx(10_000, rel=0.25)
    quotas.set_rates(UNLIMITED, UNLIMITED, UNLIMITED)
    assert not quotas.leader.is_exceeded


def _quotas(windows: Windows = KAFKAS) -> tuple[ManualClock, ReplicationQuotas]:
    clock = ManualClock()
    return clock, ReplicationQuotas(1, clock, windows, windows)


def _partition(number: int, isr: tuple[int, ...] = (1, 2), **lists: str) -> Any:
    config = LogConfig.from_overrides({k.replace("_", "."): v for k, v in lists.items()})
    return SimpleNamespace(partition=number, isr=isr, log=SimpleNamespace(config=config))


@pytest.mark.parametrize(
    ("listed", "number", "covered"),
    [("", 0, False), ("*", 7, True), ("0:1,1:2", 0, True), ("0:1,1:2", 1, False)],
)
def test_a_list_names_replicas_of_this_broker(listed: str, number: int, covered: bool) -> None:
    _, quotas = _quotas()
    partition = _partition(number, **{LEADER_LIST.replace(".", "_"): listed})
    assert quotas.leader.covers(partition) is covered
    assert not quotas.follower.covers(partition)
    assert quotas.log_dirs.covers(partition)


@pytest.mark.parametrize("wrong", ["1", "a:b", "0:1,*", "0:1:2", "0-1"])
def test_a_list_that_cannot_be_is_refused(wrong: str) -> None:
    for name in (LEADER_LIST, FOLLOWER_LIST):
        assert topic_key(name).parse(" 0:1, 12:3 ") == ("0:1", "12:3")
        assert topic_key(name).parse("*") == ("*",)
        assert topic_key(name).parse("") == ()
        with pytest.raises(UsageError, match=name):
            topic_key(name).parse(wrong)


def test_a_leader_throttles_only_followers_out_of_sync_of_listed_partitions() -> None:
    clock, quotas = _quotas()
    services: Any = SimpleNamespace(replicas=SimpleNamespace(quotas=quotas))
    quotas.set_rates(100, UNLIMITED, UNLIMITED)
    listed = _partition(0, leader_replication_throttled_replicas="*")
    other = _partition(0)
    quotas.leader.record_copied(other, 1 << 20)
    assert not is_held_back(services, listed, 3), "what is not listed does not count"
    quotas.leader.record_copied(listed, 1 << 20)
    assert is_held_back(services, listed, 3)
    assert not is_held_back(services, listed, 2), "in sync"
    assert not is_held_back(services, other, 3), "not listed"
    clock.advance(11_000)
    assert not is_held_back(services, listed, 3)
