"""The tables of the crash matrix keep the cells that a run did not touch."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from suites import spark_cells
from suites.spark_judge import DUPLICATE, MISSING, Finding
from suites.spark_matrix import STEPS
from suites.spark_pipeline import KINDS
from suites.spark_query import VICTIMS

DAY = datetime.date(2026, 1, 2)
BLOCK, LINES = "spark-cells-sink", "spark-runs"
EMPTY = "".join(
    f"text\n<!-- {name}:begin -->\n<!-- {name}:end -->\nmore\n" for name in (BLOCK, LINES)
)
A, B = ("a", "b"), ("x", "y")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(EMPTY)
    return path


def cells(page: Path) -> spark_cells.Outcomes:
    return spark_cells.parsed(spark_cells.block_of(page.read_text(), BLOCK))


def test_slices_add_up_and_a_later_run_replaces_its_cells(page: Path) -> None:
    spark_cells.write_cells("sink", A, B, {("a", "x"): "first", ("b", "y"): "kept"}, page)
    spark_cells.write_cells("sink", A, B, {("a", "x"): "second"}, page)
    assert cells(page) == {("a", "x"): "second", ("b", "y"): "kept"}
    text = page.read_text()
    assert text.count(spark_cells.NOT_RUN) == 2
    assert text.startswith("text\n") and text.endswith("more\n")


def test_lines_of_runs_add_up_too(page: Path) -> None:
    for new in ({"one": "1"}, {"two": "2"}, {"one": "3"}):
        spark_cells.write_lines(new, page)
    shown = spark_cells.block_of(page.read_text(), LINES).splitlines()[2:]
    assert shown == ["| one | 3 |", "| two | 2 |"]


def test_a_page_without_the_block_is_refused(page: Path) -> None:
    page.write_text("text")
    with pytest.raises(ValueError, match="no block spark-cells-sink"):
        spark_cells.write_cells("sink", A, B, {}, page)


def test_the_words_of_a_cell() -> None:
    assert spark_cells.outcome((), 14.4, DAY) == "held 2026-01-02, 14 s"
    found = [Finding(MISSING, "1 row"), Finding(DUPLICATE, "1 row"), Finding(MISSING, "2 rows")]
    assert spark_cells.outcome(found, 14.4, DAY) == "**duplicate, missing** 2026-01-02"


@pytest.mark.parametrize("kind", KINDS)
def test_the_docs_have_a_table_of_every_cell(kind: str) -> None:
    block = spark_cells.block_of(spark_cells.PAGE.read_text(), spark_cells.CELLS.format(kind=kind))
    assert block == spark_cells.table(STEPS[kind], VICTIMS, spark_cells.parsed(block))
