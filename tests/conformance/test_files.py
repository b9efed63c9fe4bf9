"""The contract of `headwater.ports.files`: one suite over both file systems."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.ports.files import Files
from headwater.system_files import SystemFiles
from headwater.testing.clocks import SeededEntropy
from headwater.testing.memory_files import MemoryFiles


@pytest.fixture(params=["system", "memory"])
def files(request: pytest.FixtureRequest) -> Files:
    return SystemFiles() if request.param == "system" else MemoryFiles()


def test_append_read_truncate(files: Files, tmp_path: Path) -> None:
    file = files.open(str(tmp_path / "a" / "b.log"))
    file.append(b"hello ")
    file.append(memoryview(bytearray(b"world")))
    assert file.size_bytes == 11
    assert file.read_at(6, 100) == b"world"
    assert file.read_at(11, 5) == b""
    file.truncate(5)
    assert (file.size_bytes, file.read_at(0, 100)) == (5, b"hello")
    file.append(b"!")
    file.fsync()
    assert files.open(str(tmp_path / "a" / "b.log"), must_exist=True).size_bytes == 6
    with pytest.raises(FileNotFoundError):
        files.open(str(tmp_path / "c" / "d.log"), must_exist=True)
    assert files.names(str(tmp_path / "c")) == []
    file.close()
    file.close()


def test_write_atomic_read_names_rename_remove(files: Files, tmp_path: Path) -> None:
    root = str(tmp_path)
    assert files.names(root + "/nowhere") == []
    with pytest.raises(FileNotFoundError):
        files.read(root + "/x/one")
    files.write_atomic(root + "/x/one", b"1")
    files.write_atomic(root + "/x/one", b"22")
    files.open(root + "/x/two").close()
    assert files.read(root + "/x/one") == b"22"
    assert files.names(root + "/x") == ["one", "two"]
    files.rename(root + "/x/one", root + "/x/three")
    files.rename(root + "/x", root + "/y")
    assert files.names(root + "/y") == ["three", "two"]
    files.remove(root + "/y/two")
    files.remove(root + "/y/two")
    files.remove(root + "/y")
    assert files.names(root + "/y") == []
    with pytest.raises(OSError):
        files.rename(root + "/gone", root + "/z")


def test_when_a_file_was_written(files: Files, tmp_path: Path) -> None:
    path, moved = str(tmp_path / "a.log"), str(tmp_path / "b.log")
    with pytest.raises(FileNotFoundError):
        files.modified_ms(path)
    with pytest.raises(FileNotFoundError):
        files.set_modified(path, 1)
    file = files.open(path)
    written = files.modified_ms(path)
    assert written > 1_600_000_000_000, "ms, not seconds"
    files.set_modified(path, 1_500_000_000_123)
    files.rename(path, moved)
    files.open(moved).close()
    assert files.modified_ms(moved) == 1_500_000_000_123, "neither a name nor a look is a write"
    file.append(b"x")
    assert files.modified_ms(moved) >= written
    files.set_modified(moved, 1)
    file.truncate(0)
    assert files.modified_ms(moved) >= written
    files.write_atomic(moved, b"y")
    assert files.modified_ms(moved) >= written


def test_an_open_file_outlives_its_name(files: Files, tmp_path: Path) -> None:
    file = files.open(str(tmp_path / "a.log"))
    file.append(b"still here")
    files.rename(str(tmp_path / "a.log"), str(tmp_path / "a.log.deleted"))
    files.remove(str(tmp_path / "a.log.deleted"))
    assert file.read_at(0, 5) == b"still"


def test_a_lock_is_held_once(files: Files, tmp_path: Path) -> None:
    path = str(tmp_path / "d" / ".lock")
    held = files.lock(path)
    assert held is not None
    assert files.lock(path) is None
    del held
    assert files.lock(path) is not None


def test_short_writes_are_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SystemFiles().open(str(tmp_path / "a.log"))
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, view, at: real(fd, view[:3], at))
    file.append(b"0123456789")
    assert file.size_bytes == 10
    assert file.read_at(0, 20) == b"0123456789"


def test_a_failed_append_leaves_the_old_length(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.log"
    file = SystemFiles().open(str(path))
    file.append(b"kept")
    real, calls = os.pwrite, []

    def failing(fd: int, view: memoryview, at: int) -> int:
        calls.append(at)
        if len(calls) > 1:
            raise OSError(28, "no space left")
        return real(fd, view[:2], at)

    monkeypatch.setattr(os, "pwrite", failing)
    with pytest.raises(OSError):
        file.append(b"lost")
    assert (file.size_bytes, path.read_bytes()) == (4, b"kept")


def test_crash_keeps_the_durable_and_a_prefix_of_the_rest() -> None:
    for seed in range(50):
        files = MemoryFiles(SeededEntropy(seed))
        file = files.open("/d/a.log")
        file.append(b"durable")
        file.fsync()
        file.append(b"loose" * 20)
        files.crash()
        data = files.read("/d/a.log")
        assert data.startswith(b"durable")
        assert len(data) <= 107


def test_lost_fsync_full_disk_and_failing_folder() -> None:
    files = MemoryFiles()
    files.loses_fsyncs = True
    file = files.open("/d/a.log")
    file.append(b"gone")
    file.fsync()
    files.crash()
    assert files.read("/d/a.log") == b""
    files.free_bytes = 3
    with pytest.raises(OSError, match="no space"):
        files.open("/d/b.log").append(b"four")
    files.failing_prefix = "/d/"
    with pytest.raises(OSError, match="injected"):
        files.open("/d/b.log")
