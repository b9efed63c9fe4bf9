"""The broker's periodic work: which intervals an operator may set, and which are fixed."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import MagicMock

from headwater_broker.app.lifecycle import Lifecycle
from headwater_broker.app.scheduler import Scheduler
from headwater_broker.app.wiring import BrokerServer

NEVER_MS = 2**63 - 1
"""Kafka's default of log.flush.scheduler.interval.ms."""


class Recorded:
    """A scheduler that keeps what it is given: (seconds, work) by name."""

    def __init__(self) -> None:
        self.work: dict[str, tuple[float, Any]] = {}

    def every(self, name: str, seconds: float, work: Any, **_: object) -> None:
        self.work[name] = seconds, work


def scheduled(server: Any) -> dict[str, tuple[float, Any]]:
    """(seconds, work) by the name of the broker's periodic work."""
    recorded = Recorded()
    Lifecycle(cast(BrokerServer, server), lambda _: None, cast(Scheduler, recorded)).schedule()
    return recorded.work


def test_disk_errors_met_off_the_loop_do_not_wait_for_a_flush_that_never_comes() -> None:
    server = MagicMock()
    server.config.values.integer.return_value = NEVER_MS
    ticks = scheduled(server)
    assert ticks["flush"][0] > 10**12
    assert ticks["files"] == (1, server.logs.maintain_files)
