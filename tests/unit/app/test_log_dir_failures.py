"""A failed log directory takes its replicas offline; without any the broker stops (KIP-112)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headwater.errors import HeadwaterError
from headwater_broker.app.lifecycle import Lifecycle
from headwater_broker.app.log_dir_failures import LogDirFailures
from unit.log.harness import Box, batch


class Broker:
    """Two log directories, a log in each, and what becomes known of their failures."""

    def __init__(self) -> None:
        self.box = Box(dirs=("/a", "/b"))
        self.logs = [self.box.log(topic=name, flush_ms="1000") for name in ("t", "u")]
        self.offline: list[str] = []
        self.stops: list[str] = []
        self.reports: list[str] = []
        self.registration = SimpleNamespace(
            unreported_log_dir_failures=0, report_log_dir_failures=None
        )
        replicas: Any = SimpleNamespace(directory_failed=lambda path, _: self.offline.append(path))
        background: Any = SimpleNamespace(once=lambda name, _: self.reports.append(name))
        registration: Any = self.registration
        failures = LogDirFailures(
            self.box.manager, replicas, registration, background, lambda: True, self.stops.append
        )
        self.box.manager.on_offline.append(failures.log_dir_failed)

    def fail(self, number: int) -> None:
        log = self.logs[number]
        log.append_as_leader(batch(), 0, self.box.clock.now_ms())
        self.box.clock.advance(1000)
        self.box.files.failing_prefix = log.path
        self.box.manager.flush_due()
        self.box.manager.maintain_files()

    def check_log_dirs(self) -> None:
        server: Any = SimpleNamespace(logs=self.box.manager)
        scheduler: Any = None
        Lifecycle(server, lambda _: None, scheduler).check_log_dirs()


def test_the_broker_goes_on_with_the_directories_that_are_left() -> None:
    broker = Broker()
    broker.fail(0)
    assert len(broker.offline) == len(broker.reports) == 1
    assert broker.registration.unreported_log_dir_failures == 1
    assert broker.stops == []
    broker.check_log_dirs()


def test_without_any_directory_the_broker_stops_and_its_process_fails() -> None:
    broker = Broker()
    broker.fail(0)
    broker.fail(1)
    assert sorted(broker.offline) == ["/a", "/b"]
    assert broker.stops == ["every log directory has failed"]
    with pytest.raises(HeadwaterError, match=r"/a, /b.*repair the disk or name others"):
        broker.check_log_dirs()
