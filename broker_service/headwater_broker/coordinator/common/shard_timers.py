"""One timer of the event loop per shard: the shard ticks when its next deadline has passed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic

from headwater.clock import Clock
from headwater_broker.coordinator.common.hosted_shard import HostedShard
from headwater_broker.coordinator.common.shard import S


class ShardTimers(Generic[S]):
    """The timers of a runtime's shards."""

    def __init__(
        self,
        clock: Clock,
        is_current: Callable[[HostedShard[S]], bool],
        tick: Callable[[HostedShard[S]], None],
    ) -> None:
        """`is_current`: the shard is hosted still."""
        self._clock = clock
        self._is_current = is_current
        self._tick = tick

    def arm(self, hosted: HostedShard[S]) -> None:
        """Let the shard tick at its next deadline."""
        if not self._is_current(hosted) or not hosted.is_active:
            return
        at_ms = hosted.shard.next_deadline_ms()
        if hosted.timer is not None:
            if at_ms is not None and hosted.timer_at_ms <= at_ms:
                return  # it fires early enough, and arms itself again
            hosted.timer.cancel()
            hosted.timer = None
        if at_ms is not None:
            delay_s = max(at_ms / 1000 - self._clock.monotonic(), 0.0)
            hosted.timer_at_ms = at_ms
            hosted.timer = asyncio.get_running_loop().call_later(delay_s, self._fire, hosted)

    def _fire(self, hosted: HostedShard[S]) -> None:
        hosted.timer = None
        self._tick(hosted)
