"""`headwater tier run`: Spark's own lines go into a log, and its session ends with the command."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from headwater.errors import UsageError
from headwater_spark.spark_session import SparkGoneError
from headwater_spark.tiering.command import spark_log, spark_until_end


class Spark:
    """A session that records how it was opened, and how often it was stopped."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.stops = 0
        self.has_ended = False
        context = SimpleNamespace(isStopped=lambda: self.has_ended)
        self.sparkContext = SimpleNamespace(_jsc=SimpleNamespace(sc=lambda: context))

    def open(self, master: str | None, **given: Any) -> SparkSession:
        self.given = {"master": master, **given}
        return cast(SparkSession, self)

    def stop(self) -> None:
        self.stops += 1


def test_the_log_of_a_run_without_errors_is_deleted(capsys: pytest.CaptureFixture[str]) -> None:
    with spark_log() as log:
        log.write_text("WARN NativeCodeLoader")
    assert not log.exists()
    assert capsys.readouterr() == ("", "")


def test_the_log_of_a_run_that_failed_is_kept_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError), spark_log() as log:
        log.write_text("WARN NativeCodeLoader")
        raise UsageError("no such table")
    assert capsys.readouterr().err == f"Spark's log is {log}\n"
    assert log.read_text() == "WARN NativeCodeLoader"
    log.unlink()


def test_the_session_writes_to_the_log_and_is_stopped(tmp_path: Path) -> None:
    spark = Spark()
    with spark_until_end("local[3]", tmp_path / "log", open_session=spark.open):
        assert spark.stops == 0
    assert spark.stops == 1
    assert (spark.given["master"], spark.given["log"]) == ("local[3]", tmp_path / "log")


def test_a_session_that_has_ended_is_not_stopped(tmp_path: Path) -> None:
    spark = Spark()
    session = spark_until_end(None, tmp_path / "log", open_session=spark.open)
    with pytest.raises(SparkGoneError), session:
        spark.has_ended = True
        raise SparkGoneError("Spark has ended")
    assert spark.stops == 0
