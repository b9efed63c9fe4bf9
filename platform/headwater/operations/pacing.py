"""The pace of operations: poll intervals and time limits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from headwater.clock import Clock
from headwater.system import SystemClock


@dataclass(frozen=True, slots=True)
class Pacing:
    """Poll intervals and time limits, in seconds."""

    poll_s: float = 0.25
    settle_s: float = 5.0
    """How long the metadata of a broker may lag behind the controller."""
    in_sync_s: float = 600.0
    """How long a broker may take to catch up."""
    stall_s: float = 600.0
    """How long the moves of replicas may take without any of them being done."""
    moves_at_once: int = 32
    """Partitions that move at the same time."""
    clock: Clock = field(default_factory=SystemClock)
    sleep: Callable[[float], None] = time.sleep

    def wait_until(
        self, condition: Callable[[], bool], timeout_s: float, *, times: int = 1
    ) -> bool:
        """True once the condition was true `times` times in a row; False after `timeout_s`."""
        deadline = self.clock.monotonic() + timeout_s
        held = 0
        while True:
            held = held + 1 if condition() else 0
            if held >= times:
                return True
            if self.clock.monotonic() >= deadline:
                return False
            self.sleep(self.poll_s)
