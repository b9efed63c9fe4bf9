"""The crash matrix of Spark's exactly-once writes reports what its queries did not do."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import DataFrame

from headwater_spark.sink.exactly_once import EpochWrites
from suites import spark_cells, spark_judge, spark_matrix
from suites.killing import KillableProgram
from suites.spark_judge import Finding, Output, judged, key_of, transformed
from suites.spark_matrix import STEPS, Cell, crash, is_merge
from suites.spark_pipeline import BOTH, MERGING, SINK, write_batch
from suites.spark_query import (
    VICTIMS,
    ZOMBIE,
    QueryUnderTest,
    StuckError,
    Tails,
    end_of_zombie,
)


class FakeQuery:
    """A query and its tails, which log what is asked of them."""

    def __init__(self, kind: str, **answers: Any) -> None:
        self.kind = kind
        self.log: list[str] = []
        self.points = SimpleNamespace(
            arm=lambda _step: None, release=lambda _step: None, reached=lambda _step: 1
        )
        self.restarts = self.count = 0
        self.program = SimpleNamespace(restart_if_ended=lambda: False)
        self.seen: list[tuple[str, str]] = []
        self._answers = answers

    def rows(self) -> set[tuple[str, str]]:
        return set(self.seen)

    def feed(self, rows: int) -> None:
        self.log.append("feed")
        self.seen += self._answers.get("visible", [])

    def wait_for(self, *_: object) -> None:
        """It stands at the point at once."""

    def merge(self, merges: bool) -> None:
        self.log.append("merge" if merges else "append")

    def strike(self, victim: str, _holder: int) -> Any:
        self.log.append(victim)
        return lambda: None

    def wake_zombie(self) -> list[Finding]:
        self.log.append("wake")
        found: list[Finding] = self._answers.get("zombie", [])
        return found

    def wait_for_output(self, _tails: object, _timeout_s: float | None = None) -> None:
        self.log.append("wait")
        if "stuck" in self._answers:
            raise StuckError(self._answers["stuck"])

    def judged(self, _tails: object) -> list[Finding]:
        return []

    def restarts_inside(self) -> int:
        return 0

    def crash(self, cell: Cell) -> list[Finding]:
        return crash(cast(QueryUnderTest, self), cast(Tails, self), cell)


STUCK = Finding(spark_judge.STUCK, "the zombie")


def test_a_zombie_has_rows_for_another_batch_and_its_survival_is_reported() -> None:
    query = FakeQuery(SINK, zombie=[STUCK])
    assert query.crash(Cell("after-record", ZOMBIE)) == [STUCK]
    assert query.log[query.log.index(ZOMBIE) :] == [
        ZOMBIE, "append", "feed", "wait", "feed", "wake", "wait",
    ]  # fmt: skip


def test_a_zombie_that_does_not_end_by_itself_is_killed_and_reported(tmp_path: Path) -> None:
    with KillableProgram(["sleep", "600"], tmp_path / "log") as zombie:
        (found,) = end_of_zombie(zombie, 0.0, lambda: None)
        assert found.kind == spark_judge.STUCK and "did not end within 0 s" in found.detail
        assert zombie.exit_code() is not None


def test_a_zombie_that_ends_is_as_it_should_be(tmp_path: Path) -> None:
    with KillableProgram([sys.executable, "-c", "pass"], tmp_path / "log") as zombie:
        assert end_of_zombie(zombie, 600.0, lambda: None) == []


def test_rows_of_an_undecided_epoch_in_any_topic_are_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark_matrix, "QUIET_S", 0.0)
    query = FakeQuery(BOTH, visible=[("both-out-alerts", transformed(10))])
    (found,) = query.crash(Cell("before-commit", "broker"))
    assert found.kind == spark_judge.EARLY and "both-out-alerts" in found.detail


def test_each_step_and_each_victim_has_merges_and_appends() -> None:
    cells = [Cell(step, victim) for step in STEPS[BOTH] for victim in VICTIMS]
    for name in (*STEPS[BOTH], *VICTIMS):
        assert {is_merge(BOTH, cell) for cell in cells if name in cell} == {True, False}
    assert not any(is_merge(SINK, Cell(step, v)) for step in STEPS[SINK] for v in VICTIMS)


def test_the_rows_of_a_crash_are_merged_and_those_after_it_appended() -> None:
    cell = next(c for v in VICTIMS if is_merge(BOTH, c := Cell("after-record", v)))
    query = FakeQuery(BOTH)
    query.crash(cell)
    assert query.log == ["merge", "feed", cell.victim, "append", "feed", "wait"]


class Rows:
    """A micro-batch."""

    def where(self, condition: str) -> str:
        return condition


@pytest.mark.parametrize("merges", [True, False])
def test_the_pipeline_merges_while_it_is_told_to(tmp_path: Path, merges: bool) -> None:
    if merges:
        (tmp_path / MERGING).touch()
    tx = EpochWrites(0)
    write_batch(cast(DataFrame, Rows()), tx, "out", tmp_path)
    assert type(tx.table_write).__name__ == ("Merge" if merges else "Append")
    assert [options["topic"] for _, options in tx.topic_writes] == ["out", "out-alerts"]


def test_rows_that_do_not_come_after_random_kills_are_a_finding_and_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines: dict[str, str] = {}

    @contextmanager
    def stuck(_kind: str) -> Iterator[tuple[FakeQuery, FakeQuery]]:
        query = FakeQuery(SINK, stuck="all rows: not within 420 s")
        yield query, query

    monkeypatch.setattr(spark_matrix, "query_under_test", stuck)
    monkeypatch.setattr(spark_cells, "write_lines", lines.update)
    (found,) = spark_matrix.random_kills(SINK, 0.0, 1, is_written=True)
    assert found.kind == spark_judge.STUCK
    assert list(lines) == ["`--kinds sink --minutes 0 --seed 1`"]
    assert "**stuck**" in lines["`--kinds sink --minutes 0 --seed 1`"]


def test_a_topic_with_a_part_of_the_rows_is_judged_like_any_other() -> None:
    alerts = [Output(n % 4, n, key_of(n), transformed(n)) for n in range(0, 40, 10)]

    def found(rows: list[Output]) -> list[str]:
        return [str(f) for f in judged(40, rows, name="alerts", every=10)]

    assert found(alerts) == []
    assert found(alerts[1:]) == ["missing: alerts, 1 rows: 0:0"]
    again = alerts[0]._replace(offset=99)
    assert found([*alerts, again])[0] == "duplicate: alerts, 1 rows: 0:0"


def test_each_kind_of_wrong_output_has_a_planted_bug() -> None:
    """But for those that no bug makes alone, and a query that stands still."""
    shown = {plant.finding for plant in spark_matrix.PLANTS.values()}
    rare = {spark_judge.UNEXPECTED, spark_judge.OPEN, spark_judge.STUCK}
    assert shown == set(spark_judge.CLASSES) - rare
    assert all(p.step in STEPS[p.kind] for p in spark_matrix.PLANTS.values())


@pytest.mark.parametrize(("kind", "is_caught"), [("missing", True), ("duplicate", False)])
def test_a_planted_bug_must_be_called_by_its_name(
    monkeypatch: pytest.MonkeyPatch, kind: str, is_caught: bool
) -> None:
    def of_one(_kind: str, cells: list[Cell], _plant: str) -> list[spark_matrix.Row]:
        return [spark_matrix.Row(cells[0], 1.0, (Finding(kind, "1 row"), STUCK))]

    monkeypatch.setattr(spark_matrix, "matrix", of_one)
    assert spark_matrix.caught("commit-swallowed") == ([kind] if is_caught else [])
