"""The sender's timer spares the wake-up of batches that are due after it."""

from __future__ import annotations

import asyncio

from headwater.client.drain_timer import DrainTimer


def test_an_earlier_timer_stays_and_a_later_one_gives_way() -> None:
    async def work() -> None:
        fired = asyncio.Event()
        timer = DrainTimer(fired.set)
        now = 100.0
        assert not timer.fires_by(1e9)
        timer.set(now + 1000, now)
        assert timer.fires_by(now + 1000) and not timer.fires_by(now + 999)
        timer.set(now + 2000, now)
        assert timer.fires_by(now + 1000)
        timer.set(now - 1, now)
        assert timer.fires_by(now + 0.001) and not timer.fires_by(now)
        await asyncio.wait_for(fired.wait(), 60)
        assert not timer.fires_by(1e9)

    asyncio.run(work())
