"""The settings of a session: with spark-submit's settings, and on a JVM that already runs."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from headwater_spark.running_jvm import RunningJvm
from headwater_spark.spark_session import (
    ADAPTIVE_KEY,
    CATALOG_KEY,
    DELTA_CATALOG,
    DELTA_EXTENSION,
    EXTENSIONS_KEY,
    JARS_KEY,
    SHUFFLE_KEY,
    choose_shuffle_partitions,
    delta_settings,
)

JAR = f"io.delta_delta-spark_2.13-{version('delta-spark')}.jar"


class Jvm:
    """A JVM that has Delta from this jar, or has none."""

    def __init__(self, delta: Path | None) -> None:
        self.delta = delta
        self.added: list[Path] = []

    def jar_of(self, class_name: str) -> Path | None:
        assert class_name == DELTA_EXTENSION
        return self.delta

    def add_jars(self, jars: Iterable[Path]) -> None:
        self.added += jars


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache folder whose jars were resolved before."""
    folder = tmp_path / "cache" / "jars"
    folder.mkdir(parents=True)
    (folder / JAR).touch()
    return folder.parent


def settings(cache: Path, jvm: Jvm | None, submitted: dict[str, str] | None = None) -> Any:
    return delta_settings(cast(RunningJvm | None, jvm), submitted or {}, str(cache))


def test_a_jvm_that_is_to_start_gets_the_jars_as_a_setting(cache: Path) -> None:
    assert settings(cache, None) == {
        EXTENSIONS_KEY: DELTA_EXTENSION,
        CATALOG_KEY: DELTA_CATALOG,
        JARS_KEY: str(cache / "jars" / JAR),
    }


def test_a_jvm_that_runs_without_delta_gets_it_on_its_class_path(cache: Path) -> None:
    jvm = Jvm(None)
    assert settings(cache, jvm)[JARS_KEY] == str(cache / "jars" / JAR)
    assert jvm.added == [cache / "jars" / JAR]


def test_a_second_session_of_a_jvm_sends_the_jars_to_its_executors_too(cache: Path) -> None:
    jvm = Jvm(cache / "jars" / JAR)
    assert settings(cache, jvm)[JARS_KEY] == str(cache / "jars" / JAR)
    assert jvm.added == []


def test_the_users_own_delta_stays(tmp_path: Path) -> None:
    jvm = Jvm(tmp_path / "own" / JAR)
    assert JARS_KEY not in settings(tmp_path / "nothing was resolved here", jvm)
    assert jvm.added == []


def test_submitted_settings_stay(cache: Path) -> None:
    submitted = {
        EXTENSIONS_KEY: "org.example.Extension",
        CATALOG_KEY: "org.example.Catalog",
        JARS_KEY: f"file:///x/own.jar,file:///x/{JAR}",
    }
    assert settings(cache, Jvm(None), submitted) == {
        EXTENSIONS_KEY: f"org.example.Extension,{DELTA_EXTENSION}",
        JARS_KEY: f"file:///x/own.jar,file:///x/{JAR}",
    }
    twice = settings(cache, Jvm(None), {EXTENSIONS_KEY: DELTA_EXTENSION})
    assert twice[EXTENSIONS_KEY] == DELTA_EXTENSION


class Conf(dict[str, str]):
    """The part of a session's runtime configuration that is used."""

    @property
    def getAll(self) -> dict[str, str]:  # noqa: N802 - pyspark's name
        return dict(self)

    set = dict[str, str].__setitem__


def shuffled(master: str, **given: str) -> dict[str, str]:
    conf = Conf({key.replace("_", "."): value for key, value in given.items()})
    spark = SimpleNamespace(conf=conf, sparkContext=SimpleNamespace(master=master))
    choose_shuffle_partitions(cast(SparkSession, spark), 8)
    return dict(conf)


@pytest.mark.parametrize(
    ("master", "partitions"),
    [("local[2]", "2"), ("local", "1"), ("local[*]", "8"), ("local-cluster[3,3,1500]", "9")],
)
def test_one_machine_has_a_shuffle_partition_per_core(master: str, partitions: str) -> None:
    assert shuffled(master) == {SHUFFLE_KEY: partitions, ADAPTIVE_KEY: "200"}


def test_a_configured_number_of_shuffle_partitions_stays() -> None:
    given = {"spark_sql_shuffle_partitions": "200"}
    assert shuffled("local[2]", **given) == {SHUFFLE_KEY: "200"}
    assert shuffled("yarn") == {}
    assert shuffled("spark://h:7077") == {}
