"""When a continuous tierer commits which topic."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import cast

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock
from headwater_spark.tier_command import FAILURE_PAUSE_S, run_for_ever
from headwater_spark.tier_job import Round, TopicReplacedError, TopicTier


class Stop(threading.Event):
    """Waiting lets the clock's time pass; set once `until_s` is reached."""

    def __init__(self, clock: ManualClock, until_s: float) -> None:
        super().__init__()
        self._clock, self._until_s = clock, until_s

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self._clock.advance(round(timeout * 1000))
        if self._clock.monotonic() >= self._until_s:
            self.set()
        return self.is_set()


class Topic:
    """A topic whose rounds end as `script` says, then idle; notes when each was."""

    def __init__(self, clock: ManualClock, interval_s: float, *script: Round | Exception) -> None:
        self.topic = SimpleNamespace(name="t")
        self.at: list[float] = []
        self._clock, self._interval_s, self._script = clock, interval_s, list(script)

    def interval_s(self) -> float:
        return self._interval_s

    def round(self) -> Round:
        self.at.append(self._clock.monotonic())
        step = self._script.pop(0) if self._script else made(None)
        if isinstance(step, Exception):
            raise step
        return step


def made(version: int | None, *, discarded: bool = False, behind: bool = False) -> Round:
    return Round("t", 1, 1, 1, 1, version, discarded, behind)


def run(clock: ManualClock, *topics: Topic, interval_s: float | None, until_s: float) -> list[int]:
    told: list[int] = []
    tiers = cast(list[TopicTier], list(topics))
    stop = Stop(clock, until_s)
    run_for_ever(tiers, interval_s, lambda r: told.append(r.version or -1), stop, clock)
    return told


def test_each_topic_at_its_own_interval() -> None:
    clock = ManualClock()
    slow, fast = Topic(clock, 60.0), Topic(clock, 20.0)
    run(clock, slow, fast, interval_s=None, until_s=100.0)
    assert slow.at == [0.0, 60.0]
    assert fast.at == [0.0, 20.0, 40.0, 60.0, 80.0]


def test_the_option_wins() -> None:
    clock = ManualClock()
    topic = Topic(clock, 60.0)
    run(clock, topic, interval_s=2.0, until_s=5.0)
    assert topic.at == [0.0, 2.0, 4.0]


def test_who_is_behind_or_was_overtaken_does_not_wait() -> None:
    clock = ManualClock()
    topic = Topic(clock, 60.0, made(1, behind=True), made(None, discarded=True), made(2))
    told = run(clock, topic, interval_s=None, until_s=61.0)
    assert (topic.at, told) == ([0.0, 0.0, 0.0, 60.0], [1, -1, 2])


def test_what_is_refused_now_is_tried_again_and_a_replaced_topic_ends_it() -> None:
    clock = ManualClock()
    refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "t")
    topic = Topic(clock, 60.0, refusal, TopicReplacedError("another t"))
    with pytest.raises(TopicReplacedError):
        run(clock, topic, interval_s=None, until_s=100.0)
    assert topic.at == [0.0, FAILURE_PAUSE_S]
