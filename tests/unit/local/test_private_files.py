"""The files of a secure cluster are for their owner only; those of another follow the umask."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater.local import daemon
from headwater.local.daemon import UpOptions
from headwater.local.manager import ManagerState, Progress
from headwater.local.processes import CLUSTER_DIR_VARIABLE

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment, the handlers and the umask, which a cluster changes."""
    monkeypatch.setenv(CLUSTER_DIR_VARIABLE, "")
    handlers = {signum: signal.getsignal(signum) for signum in HANDLED}
    umask = os.umask(0o022)
    yield
    os.umask(umask)
    for signum, handler in handlers.items():
        signal.signal(signum, handler)


class Writer:
    """Writes a file as a broker does, then a signal ends the cluster."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self, _progress: Progress) -> None:
        self._folder.mkdir(parents=True)
        (self._folder / "0.log").write_text("records")
        os.kill(os.getpid(), signal.SIGTERM)

    def state(self) -> ManagerState:
        return ManagerState(bootstrap_servers="", zookeeper="", control_addresses=())

    def stop(self, _progress: Progress) -> None: ...


def run(directory: Path, *, secure: bool, **properties: str) -> None:
    options = UpOptions(str(directory), properties=properties, secure=secure)
    writer = Writer(directory / "broker-0" / "t-0")
    assert daemon.run(options, lambda _event: None, make_manager=lambda *_: writer) == 0


def modes(*paths: Path) -> list[int]:
    return [stat.S_IMODE(path.stat().st_mode) for path in paths]


@pytest.mark.parametrize(
    ("secure", "expected"), [(True, [0o700, 0o700, 0o600]), (False, [0o755, 0o755, 0o644])]
)
def test_only_the_owner_reads_the_files_of_a_secure_cluster(
    tmp_path: Path, secure: bool, expected: list[int]
) -> None:
    directory = tmp_path / "d"
    run(directory, secure=secure)
    folder = directory / "broker-0"
    assert modes(directory, folder, folder / "t-0" / "0.log") == expected
    assert os.umask(0o022) == 0o022, "this process has its own again"


def test_data_folders_of_an_open_cluster_are_shut_when_it_becomes_secure(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    (disk / "broker-1").mkdir(parents=True)
    run(tmp_path / "d", secure=True, **{"log.dirs": str(disk)})
    assert modes(disk, disk / "broker-1") == [0o755, 0o700], "others may use the disk"


def test_a_folder_of_all_users_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(UsageError, match=r"for all users.*--dir"):
        run(tmp_path, secure=True)
    assert modes(tmp_path) == [0o1777]
