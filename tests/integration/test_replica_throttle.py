"""A follower that catches up obeys the quotas of KIP-73; one in sync is not slowed by them."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater.client.connection import open_connection
from headwater.errors import ErrorCode
from headwater.system import SystemClock
from headwater_broker.quota.rate import Windows
from headwater_broker.replica.replication_config import ReplicationConfig
from headwater_broker.replica.replication_quota import UNLIMITED
from integration.test_replica_trio import produce, same, until
from replica_trio import BROKERS, Trio

pytestmark = pytest.mark.integration

VALUE = b"v" * 50_000
FILLED_BYTES = 3_000_000
RATE = 1_000_000
LIMITS = ReplicationConfig(
    quota_windows=Windows(2, 0.25), fetch_max_bytes=100_000, fetch_wait_max_ms=50
)
LATENCY_P50_MS = 25.0
"""Far above what it takes, and far below a pause of the quota."""


@pytest.mark.parametrize("side", ["leader", pytest.param("follower", marks=pytest.mark.long)])
def test_a_catch_up_obeys_the_rate_and_replicas_in_sync_do_not_feel_it(
    tmp_path: Path, side: str
) -> None:
    async def story(trio: Trio) -> None:
        listed = {f"{side}_replication_throttled_replicas": "*"}
        topic_id = trio.create("t", **listed)
        clock, to = SystemClock(), await open_connection("127.0.0.1", trio.brokers[1].port)
        await trio.stop(3)
        trio.elect(topic_id, 1, (1, 2))
        for _ in range(FILLED_BYTES // len(VALUE)):
            assert await produce(to, topic_id, VALUE) is ErrorCode.NONE
        await trio.start(3)
        for broker in trio.brokers.values():
            broker.replicas.quotas.set_rates(
                RATE if side == "leader" else UNLIMITED,
                RATE if side == "follower" and broker.id == 3 else UNLIMITED,
                UNLIMITED,
            )
        began, times = clock.monotonic(), []
        while not same(trio, "t", (1, 3))():
            before = clock.monotonic()
            assert await produce(to, topic_id, b"small") is ErrorCode.NONE
            times.append((clock.monotonic() - before) * 1000)
            await asyncio.sleep(0.02)
            assert clock.monotonic() - began < 30
        took = clock.monotonic() - began
        assert took > FILLED_BYTES / RATE / 2, f"{FILLED_BYTES} bytes in {took:.2f} s"
        assert statistics.median(times) < LATENCY_P50_MS
        await until(same(trio, "t", BROKERS), "the same logs")
        to.close()

    run(tmp_path, story)


def run(folder: Path, story: Callable[[Trio], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Trio(folder, LIMITS) as trio:
            await asyncio.wait_for(story(trio), 60)

    asyncio.run(main())
