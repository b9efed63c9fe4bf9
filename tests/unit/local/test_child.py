"""Logs of child processes, the version of Java, processes by pid and start time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater.local import java
from headwater.local.child import LOGS_KEPT, last_error_line, rotate_if_large
from headwater.local.processes import ProcessRef
from headwater.local.zookeeper import zookeeper_jars


def test_a_small_log_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("few")
    assert not rotate_if_large(log, 10)
    assert not rotate_if_large(tmp_path / "absent.log", 10)


def test_a_log_is_rotated_under_its_writer(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    with open(log, "ab", buffering=0) as writer:
        for number in range(LOGS_KEPT + 3):
            writer.write(b"%d" % number * 20)
            assert rotate_if_large(log, 10)
        writer.write(b"last")
    assert log.read_text() == "last"
    parts = sorted(path.name for path in tmp_path.iterdir())
    assert parts == ["x.log", *(f"x.log.{n}" for n in range(1, LOGS_KEPT + 1))]
    assert (tmp_path / "x.log.1").read_text() == str(LOGS_KEPT + 2) * 20


def test_the_last_words_are_the_last_written_line(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("Traceback:\n  File\nOSError: no space left\n\n")
    assert last_error_line(log) == "OSError: no space left"
    frames = "\tat sun.nio.ch.Net.bind\n\t... 3 more\n"
    log.write_text(f"WARN Close\njava.net.BindException: in use\n{frames}")
    assert last_error_line(log) == "java.net.BindException: in use"
    log.write_text("")
    assert last_error_line(log) == "it wrote nothing"


def test_words_of_an_earlier_run_are_not_the_last_ones(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("the run before was killed\n")
    start = log.stat().st_size
    assert last_error_line(log, start) == "it wrote nothing"
    with open(log, "a") as writer:
        writer.write("port 9092 is in use\n")
    assert last_error_line(log, start) == "port 9092 is in use"
    log.write_text("rotated\n")
    assert last_error_line(log, start) == "rotated"


def test_a_reused_pid_is_not_the_same_process() -> None:
    me = ProcessRef.of("me", os.getpid())
    assert me.alive()
    assert not ProcessRef("me", me.pid, me.started - 100).alive()


def fake_java(folder: Path, release: str | None) -> str:
    (folder / "bin").mkdir(parents=True)
    binary = folder / "bin" / "java"
    binary.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    binary.chmod(0o755)
    if release is not None:
        (folder / "release").write_text(release)
    return str(binary)


def test_java_is_taken_from_java_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = fake_java(tmp_path, 'JAVA_VERSION="21.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert java.find_java() == binary


def test_an_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path, None)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="is Java 8: install Java 17"):
        java.find_java()


def test_no_java_is_one_line_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "absent"))
    with pytest.raises(UsageError, match=r"cannot be run: install Java 17.*JAVA_HOME"):
        java.find_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="no Java found"):
        java.find_java()


def test_zookeeper_is_found_without_importing_pyspark() -> None:
    assert any("zookeeper-" in jar for jar in zookeeper_jars())
