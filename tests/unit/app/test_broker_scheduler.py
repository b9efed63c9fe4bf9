"""The broker's periodic work: which intervals an operator may set, and which are fixed."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import MagicMock

from headwater.config.keys import broker_values
from headwater_broker.app.lifecycle import Lifecycle
from headwater_broker.app.scheduler import Scheduler
from headwater_broker.app.wiring import BrokerServer

NEVER_MS = 2**63 - 1
"""Kafka's default of log.flush.scheduler.interval.ms."""


class Recorded:
    """A scheduler that keeps what it is given: (seconds, work) and first delay by name."""

    def __init__(self) -> None:
        self.work: dict[str, tuple[float, Any]] = {}
        self.first_s: dict[str, float | None] = {}

    def every(self, name: str, seconds: float, work: Any, *, first_s: float | None = None) -> None:
        self.work[name] = seconds, work
        self.first_s[name] = first_s


def scheduled(server: Any) -> Recorded:
    """The broker's periodic work."""
    recorded = Recorded()
    Lifecycle(cast(BrokerServer, server), lambda _: None, cast(Scheduler, recorded)).schedule()
    return recorded


def test_disk_errors_met_off_the_loop_do_not_wait_for_a_flush_that_never_comes() -> None:
    server = MagicMock()
    server.config.values.integer.return_value = NEVER_MS
    ticks = scheduled(server).work
    assert ticks["flush"][0] > 10**12
    assert ticks["files"] == (1, server.logs.maintain_files)


LOG_WORK = {
    "flush": "log.flush.scheduler.interval.ms",
    "retention": "log.retention.check.interval.ms",
    "high watermarks": "replica.high.watermark.checkpoint.interval.ms",
    "recovery points": "log.flush.offset.checkpoint.interval.ms",
    "log starts": "log.flush.start.offset.checkpoint.interval.ms",
    "compaction": "log.cleaner.backoff.ms",
}
"""Work on logs, and the key of its interval."""


def test_work_on_logs_has_its_keys_intervals_and_begins_after_a_delay() -> None:
    given = {key: str(1000 * number) for number, key in enumerate(LOG_WORK.values(), 40)}
    server = MagicMock()
    server.config.values = broker_values(given)
    found = scheduled(server)
    assert {name: found.work[name][0] for name in LOG_WORK} == {
        name: number for number, name in enumerate(LOG_WORK, 40)
    }
    assert {found.first_s[name] for name in LOG_WORK} == {30}, "log.initial.task.delay.ms"
    logs = server.logs
    works = [found.work[name][1] for name in ("flush", "high watermarks", "recovery points")]
    assert works == [
        logs.flush_due, logs.checkpoint_high_watermarks, logs.checkpoint_recovery_points
    ]  # fmt: skip


def test_without_the_cleaner_nothing_is_compacted() -> None:
    server = MagicMock()
    server.config.values = broker_values({"log.cleaner.enable": "false"})
    assert "compaction" not in scheduled(server).work
