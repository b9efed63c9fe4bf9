"""SIGINT and SIGTERM end a cluster, whatever code they interrupt."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater.local import daemon
from headwater.local.daemon import INTERRUPTED_EXIT, UpOptions
from headwater.local.manager import ManagerState, Progress
from headwater.local.processes import CLUSTER_DIR_VARIABLE

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    former = {signum: signal.getsignal(signum) for signum in HANDLED}
    yield
    for signum, handler in former.items():
        signal.signal(signum, handler)


class Deaf:
    """Runs nothing. A signal comes during its start, in code that catches exceptions."""

    def __init__(self, signum: int, caught: type[BaseException]) -> None:
        self.signum, self.caught = signum, caught
        self.is_stopped = False

    def start(self, _progress: Progress) -> None:
        try:
            os.kill(os.getpid(), self.signum)
        except self.caught:
            pass

    def state(self) -> ManagerState:
        return ManagerState(bootstrap_servers="", zookeeper="", control_addresses=())

    def stop(self, _progress: Progress) -> None:
        self.is_stopped = True


class Ready(Deaf):
    """Is ready at once; a signal comes when it is."""

    def __init__(self) -> None:
        super().__init__(signal.SIGTERM, ValueError)

    def start(self, _progress: Progress) -> None: ...


def test_a_file_system_without_sockets_does_not_stop_a_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(CLUSTER_DIR_VARIABLE, "")
    (tmp_path / "supervisor.sock").mkdir()  # no socket can be made there
    events: list[dict[str, Any]] = []

    def report(event: dict[str, Any]) -> None:
        events.append(event)
        os.kill(os.getpid(), signal.SIGTERM)

    assert daemon.run(UpOptions(str(tmp_path)), report, make_manager=lambda *_: Ready()) == 0
    assert [event["event"] for event in events] == ["up"]
    assert "no socket for `headwater cluster`" in caplog.text


@pytest.mark.parametrize("caught", [Exception, BaseException])
@pytest.mark.parametrize(
    ("signum", "code"), [(signal.SIGINT, INTERRUPTED_EXIT), (signal.SIGTERM, 0)]
)
def test_a_signal_ends_it_whatever_the_code_it_comes_in_catches(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caught: type[BaseException],
    signum: int,
    code: int,
) -> None:
    manager = Deaf(signum, caught)

    monkeypatch.setenv(CLUSTER_DIR_VARIABLE, "")
    report: Callable[[dict[str, Any]], None] = [].append
    made = daemon.run(UpOptions(str(tmp_path)), report, make_manager=lambda *_: manager)
    assert made == code
    assert manager.is_stopped
