"""`headwater tier run`: Spark's own lines are not the user's."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from headwater.errors import UsageError
from headwater_spark.spark_session import SparkGoneError
from headwater_spark.tiering import command


class NoSpark:
    """A session that does nothing, until it has ended."""

    has_ended = False

    @property
    def sparkContext(self) -> Any:  # noqa: N802 - pyspark's name
        context = SimpleNamespace(isStopped=lambda: self.has_ended)
        return SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context))

    def stop(self) -> None:
        """There is nothing to stop."""
        assert not self.has_ended


class Tier:
    """A topic's tier whose first round fails, when it shall."""

    fails = False

    def __init__(self, *_: Any, **__: Any) -> None:
        if self.fails:
            raise UsageError("no such topic")

    def enable(self) -> bool:
        return False


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that sessions were given; Spark has written to each."""
    found: list[Path] = []

    def session(_master: str, *, log: Path, **_: Any) -> NoSpark:
        log.write_text("WARN NativeCodeLoader")
        found.append(log)
        return NoSpark()

    class There:
        """A cluster that has the topic "t"."""

        def __init__(self, servers: str) -> None:
            self.servers = servers

        def topics(self, names: tuple[str, ...]) -> None:
            if names != ("t",):
                raise UsageError(f"{names[0]} does not exist at {self.servers}")

        def close(self) -> None: ...

    monkeypatch.setattr(command, "Brokers", There)
    monkeypatch.setattr(command, "session", session)
    monkeypatch.setattr(command, "TopicTier", Tier)
    monkeypatch.setattr(command, "drain", lambda *_: None)
    return found


def run(topic: str = "t") -> Any:
    return CliRunner().invoke(command.run, [topic, "--bootstrap-server", "h:1"])


def test_sparks_lines_go_into_a_file_that_is_gone_when_all_went_well(logs: list[Path]) -> None:
    result = run()
    assert (result.exception, result.output) == (None, "")
    assert [log.exists() for log in logs] == [False]


def test_what_went_wrong_names_the_file(logs: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tier, "fails", True)
    result = run()
    assert isinstance(result.exception, UsageError)
    assert f"what Spark said is in {logs[0]}" in result.output
    assert "NativeCodeLoader" in logs[0].read_text()
    logs[0].unlink()


def test_a_wrong_name_is_told_before_spark_starts(logs: list[Path]) -> None:
    result = run("nosuch")
    assert str(result.exception) == "nosuch does not exist at h:1"
    assert not logs


def test_a_spark_that_has_ended_is_not_asked_to_stop(
    logs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*_: Any) -> None:
        monkeypatch.setattr(NoSpark, "has_ended", True)
        raise SparkGoneError("Spark has ended")

    monkeypatch.setattr(command, "drain", ends)
    result = run()
    assert isinstance(result.exception, SparkGoneError)
    logs[0].unlink()
