"""The error of a call that runs out of time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from headwater.client.cluster import Cluster, ClusterOptions
from headwater.client.errors import KafkaTimeoutError, kafka_error
from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock

LIMIT_MS = 300


def run_out(*failures: Exception) -> None:
    """The attempts fail with these errors, then one hangs."""
    left = list(failures)

    async def attempt() -> None:
        if left:
            raise left.pop(0)
        await asyncio.Event().wait()

    async def story() -> None:
        cluster = Cluster([], ClusterOptions(retry_backoff_ms=1))
        await cluster.retrying("create topics", attempt, LIMIT_MS)

    asyncio.run(story())


def test_a_call_that_waits_logs_why_at_growing_intervals(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    left = 20

    async def attempt() -> None:
        nonlocal left
        clock.advance(1000)
        left -= 1
        if left:
            raise ConnectionError("refused")

    async def call(on_wait: Callable[[str, int], None] | None) -> None:
        options = ClusterOptions(retry_backoff_ms=0, on_wait=on_wait)
        await Cluster([], options, clock).retrying("create topics", attempt)

    asyncio.run(call(None))
    assert caplog.messages == [
        f"waiting for {seconds} s, up to 60 s: create topics: refused" for seconds in (5, 10)
    ]
    caplog.clear()
    left, waits = 20, []
    asyncio.run(call(lambda what, limit_ms: waits.append((what, limit_ms))))
    assert waits == [("create topics: refused", 60_000)] and not caplog.messages


def test_the_last_error_is_raised_rather_than_the_timeout() -> None:
    reason = kafka_error(ErrorCode.REQUEST_TIMED_OUT, "the controller did not answer")
    with pytest.raises(KafkaError) as raised:
        run_out(ConnectionError("lost"), reason)
    assert raised.value is reason


def test_without_an_error_the_timeout_names_the_call() -> None:
    with pytest.raises(KafkaTimeoutError, match="create topics: not done within 300 ms"):
        run_out()
