"""A start that fails leaves the cluster's folder as it was."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from headwater.errors import HeadwaterError, UsageError
from headwater.local.cluster_file import DirectoryLock
from headwater.local.failed_start import undone_if_it_fails


def begin(directory: Path) -> None:
    """Write what a start writes until its brokers are ready."""
    for name in ("logs", "conf", "zookeeper/data", "broker-0"):
        (directory / name).mkdir(parents=True, exist_ok=True)
    (directory / "logs" / "broker-0.log").write_text("it is broken\n")
    (directory / "cluster.json").write_text("{}")
    (directory / "broker-0" / "meta.properties").write_text("version=1\n")
    lock = DirectoryLock(directory)
    lock.acquire()
    lock.release()


def fail(directory: Path, text: str = "port 9092 is in use", *roots: Path) -> None:
    with pytest.raises(UsageError), undone_if_it_fails(directory, roots):
        begin(directory)
        for root in roots:
            (root / "broker-0").mkdir(parents=True)
        raise UsageError(text)


def entries(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def test_a_new_folder_and_its_new_parents_go(tmp_path: Path) -> None:
    fail(tmp_path / "a" / "b", "port 9092 is in use", tmp_path / "disk" / "x")
    assert entries(tmp_path) == []


def test_logs_stay_when_the_error_names_one(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    fail(directory, f"broker-0 exited with 3 (log: {directory}/logs/broker-0.log)")
    assert entries(directory) == ["logs", "logs/broker-0.log"]


def test_a_start_that_succeeds_keeps_its_files(tmp_path: Path) -> None:
    with undone_if_it_fails(tmp_path):
        begin(tmp_path)
    assert (tmp_path / "broker-0" / "meta.properties").exists()


def test_a_known_cluster_keeps_its_data_and_its_description(tmp_path: Path) -> None:
    (tmp_path / "broker-1" / "t-0").mkdir(parents=True)
    (tmp_path / "zookeeper" / "data").mkdir(parents=True)
    (tmp_path / "cluster.json").write_text('{"brokers": 2}')
    (tmp_path / "notes.txt").write_text("the user's own")
    before = entries(tmp_path)
    fail(tmp_path)
    assert entries(tmp_path) == before
    assert (tmp_path / "cluster.json").read_text() == '{"brokers": 2}'


def test_modes_are_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "broker-1").mkdir()
    (tmp_path / "cluster.json").write_text('{"brokers": 2}')
    modes = {tmp_path: 0o755, tmp_path / "broker-1": 0o750, tmp_path / "cluster.json": 0o600}
    for path, mode in modes.items():
        path.chmod(mode)
    with pytest.raises(UsageError), undone_if_it_fails(tmp_path):
        (tmp_path / "cluster.json").unlink()
        begin(tmp_path)
        for path in modes:
            path.chmod(0o700)
        raise UsageError("port 9092 is in use")
    assert {path: stat.S_IMODE(path.stat().st_mode) for path in modes} == modes


def test_files_that_a_start_does_not_make_are_not_touched(tmp_path: Path) -> None:
    directory = tmp_path / "d"
    with pytest.raises(HeadwaterError), undone_if_it_fails(directory):
        begin(directory)
        (directory / "notes.txt").write_text("written by the user meanwhile")
        raise HeadwaterError("too bad")
    assert entries(directory) == ["notes.txt"]


@pytest.mark.parametrize("holder", ["broker-0", "broker-1"])
def test_nothing_goes_once_a_broker_has_a_new_replica(tmp_path: Path, holder: str) -> None:
    """A client may have written to it."""
    (tmp_path / "broker-1").mkdir()
    with pytest.raises(HeadwaterError), undone_if_it_fails(tmp_path):
        begin(tmp_path)
        (tmp_path / holder / "t-0").mkdir()
        raise HeadwaterError("the other broker failed")
    assert (tmp_path / holder / "t-0").exists() and (tmp_path / "zookeeper").exists()


def test_the_files_of_a_cluster_that_runs_here_are_not_touched(tmp_path: Path) -> None:
    running = DirectoryLock(tmp_path)
    with pytest.raises(UsageError), undone_if_it_fails(tmp_path):
        begin(tmp_path)  # meanwhile another process has won the race
        running.acquire()
        raise UsageError("a cluster runs here already")
    running.release()
    assert (tmp_path / "broker-0" / "meta.properties").exists()


def test_a_lock_on_a_file_that_was_removed_does_not_count(tmp_path: Path) -> None:
    first, second = DirectoryLock(tmp_path), DirectoryLock(tmp_path)
    first.acquire()
    (tmp_path / ".lock").unlink()
    second.acquire()
    with pytest.raises(UsageError):
        DirectoryLock(tmp_path).acquire()
    first.release()
    second.release()
