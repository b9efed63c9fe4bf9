"""The rounds of `tier run --continuous`: when each topic is tiered."""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, SimpleNamespace
from typing import Any, cast

import click
import pytest
from click.testing import CliRunner

from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock
from headwater_spark.spark_session import SparkGoneError, SparkJobError
from headwater_spark.tiering import command
from headwater_spark.tiering.command import (
    FAILURE_PAUSE_S,
    WAIT_MAX_S,
    StopRequest,
    asked_to_stop,
    run_continuously,
)
from headwater_spark.tiering.job import Round, TopicReplacedError, TopicTier


class Stop(StopRequest):
    """Waiting advances the clock; set once `until_s` is reached."""

    def __init__(self, clock: ManualClock, until_s: float) -> None:
        super().__init__()
        self._clock, self._until_s = clock, until_s

    def wait(self, timeout_s: float) -> bool:
        assert timeout_s <= WAIT_MAX_S
        self._clock.advance(round(timeout_s * 1000))
        if self._clock.monotonic() >= self._until_s:
            self.set()
        return self.is_set()


class Topic:
    """A topic whose rounds have the results of `script`, then are idle; records their times."""

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
    versions: list[int] = []
    tiers = cast(list[TopicTier], list(topics))
    stop = Stop(clock, until_s)
    run_continuously(tiers, interval_s, lambda r: versions.append(r.version or -1), stop, clock)
    return versions


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


def test_a_round_that_left_records_or_was_discarded_is_followed_at_once() -> None:
    clock = ManualClock()
    topic = Topic(clock, 60.0, made(1, behind=True), made(None, discarded=True), made(2))
    versions = run(clock, topic, interval_s=None, until_s=61.0)
    assert (topic.at, versions) == ([0.0, 0.0, 0.0, 60.0], [1, -1, 2])


def test_a_broker_error_is_retried_and_a_replaced_topic_ends_the_run() -> None:
    clock = ManualClock()
    refusal = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "t")
    topic = Topic(clock, 60.0, refusal, TopicReplacedError("another t"))
    with pytest.raises(TopicReplacedError):
        run(clock, topic, interval_s=None, until_s=100.0)
    assert topic.at == [0.0, FAILURE_PAUSE_S]


def test_a_failed_job_is_retried_and_the_end_of_spark_ends_the_run() -> None:
    clock = ManualClock()
    topic = Topic(clock, 60.0, SparkJobError("disk full"), SparkGoneError("no JVM"))
    with pytest.raises(SparkGoneError):
        run(clock, topic, interval_s=None, until_s=100.0)
    assert topic.at == [0.0, FAILURE_PAUSE_S]


def test_a_very_long_interval_is_waited_for_in_parts() -> None:
    clock = ManualClock()
    ages, short = Topic(clock, (2**63 - 1) / 1000), Topic(clock, 2 * WAIT_MAX_S)
    run(clock, ages, short, interval_s=None, until_s=3 * WAIT_MAX_S)
    assert (ages.at, short.at) == ([0.0], [0.0, 2 * WAIT_MAX_S])


@pytest.mark.parametrize("text", ["nan", "inf", "-1"])
def test_an_interval_is_a_number_of_seconds(text: str) -> None:
    arguments = ["t", "--bootstrap-server", "h:1", "--interval", text]
    result = CliRunner().invoke(command.run, arguments)
    assert (result.exit_code, "--interval" in result.output) == (2, True)


def interrupted_wait(stop: StopRequest, asked: Any, moment: int, seen: list[bool]) -> None:
    """Wait, and run the signal handler before the `moment`-th line event of the wait."""
    steps = 0

    def step(_frame: FrameType, _event: str, _argument: Any) -> Any:
        nonlocal steps
        steps += 1
        if steps == moment:
            sys.settrace(None)
            asked(signal.SIGINT, None)
        return step

    sys.settrace(step)
    try:
        stop.wait(0.001)
    finally:
        sys.settrace(None)
    seen.extend((steps >= moment, stop.is_set()))


def test_a_signal_at_any_moment_of_the_wait_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """In another thread: a wait that blocked for ever would block the test run."""
    monkeypatch.setattr(click, "echo", lambda *_, **__: None)
    came, moment = True, 0
    while came:
        moment += 1
        seen: list[bool] = []
        with asked_to_stop() as stop:
            arguments = (stop, signal.getsignal(signal.SIGINT), moment, seen)
            waits = threading.Thread(target=interrupted_wait, args=arguments, daemon=True)
            waits.start()
            waits.join(10)
            assert not waits.is_alive(), f"step {moment} of the wait: blocked"
        came = seen[0]
        assert seen == [came, came]
    assert moment > 3  # the trace saw the wait
