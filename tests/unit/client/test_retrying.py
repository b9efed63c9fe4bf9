"""The error of a call that runs out of time."""

from __future__ import annotations

import asyncio

import pytest

from headwater.client.cluster import Cluster, ClusterOptions
from headwater.client.errors import KafkaTimeoutError, kafka_error
from headwater.errors import ErrorCode, KafkaError

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


def test_the_last_error_is_raised_rather_than_the_timeout() -> None:
    reason = kafka_error(ErrorCode.REQUEST_TIMED_OUT, "the controller did not answer")
    with pytest.raises(KafkaError) as raised:
        run_out(ConnectionError("lost"), reason)
    assert raised.value is reason


def test_without_an_error_the_timeout_names_the_call() -> None:
    with pytest.raises(KafkaTimeoutError, match="create topics: not done within 300 ms"):
        run_out()
