"""The notebook and README's cell, run twice as a reader would run them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from headwater.local import processes
from integration.jvm_tools import SHORT_LIVED_JVM

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "notebooks" / "first_five_minutes.ipynb"
FIRST_CELL_LINES_MAX = 17
ENDED_S = 15.0
TIMEOUT_S = 400
"""Three minutes on two cores that have little else to do."""


def load() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def on_port(source: str, port: int) -> str:
    """The cell on another port: 9092 may be taken on the machine that runs the tests."""
    given = "brokers=3)"
    assert source.count(given) == 1
    return source.replace(given, f"brokers=3, port={port})")


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("MPLBACKEND", "agg")
    (tmp_path / "conf").mkdir()
    options = f"spark.executor.defaultJavaOptions {SHORT_LIVED_JVM}\n"
    (tmp_path / "conf" / "spark-defaults.conf").write_text(options)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))


def test_it_is_stored_without_outputs_and_its_first_cell_is_short() -> None:
    notebook = load()
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert len(code[0].source.splitlines()) <= FIRST_CELL_LINES_MAX
    for number, cell in enumerate(code):
        compile(cell.source, f"cell {number}", "exec")


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.usefixtures("environment")
def test_every_cell_runs_twice(tmp_path: Path, free_base_port: int) -> None:
    """All cells but the last, which stops the cluster; then all of them again."""
    notebook = load()
    *code, stop = [cell for cell in notebook.cells if cell.cell_type == "code"]
    code[0].source = on_port(code[0].source, free_base_port)
    again = [nbformat.v4.new_code_cell(cell.source) for cell in code]
    ticks = nbformat.v4.new_code_cell("print([float(hour) for hour in axes.get_xticks()])")
    notebook.cells = [*code, *again, ticks, stop]
    started = time.monotonic()
    NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    took = time.monotonic() - started
    first, second = (
        "".join(o.get("text", "") for cell in cells for o in cell.outputs)
        for cells in (code, again)
    )
    assert "12,000 records acknowledged, 12,000 in the topic" in first
    assert "0 records acknowledged, 12,500 in the topic" in second
    assert "the second run added 0" in first and "the second run added 0" in second
    for shown in (first, second):
        assert "12,500 records, 12,500 distinct offsets" in shown
        assert hellos(shown) == 1000
    hours = json.loads(ticks.outputs[0].text)
    assert hours and all(hour == int(hour) for hour in hours), "hours of the day are whole numbers"
    assert processes.wait_gone(processes.of_cluster(tmp_path / "headwater-data"), ENDED_S) == []
    print(f"the notebook took {took:.0f} s, each cell twice")


def hellos(shown: str) -> int:
    """The records of the topic "hello" in the table that the first cell prints."""
    rows = re.findall(r"^\|\s+[012]\|\s+(\d+)\|$", shown, re.MULTILINE)
    assert len(rows) == 3, shown
    return sum(map(int, rows))


@pytest.mark.long
@pytest.mark.timeout(TIMEOUT_S + 30)
@pytest.mark.usefixtures("environment")
def test_readmes_cell_runs_twice_and_in_the_next_session(
    tmp_path: Path, free_base_port: int
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (cell,) = (block for block in blocks if "headwater_spark.session" in block)
    script = tmp_path / "cell.py"
    twice = on_port(cell, free_base_port)
    script.write_text(f"{twice}\n{twice}\nprint('records', df.count())\n")
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert done.stdout.endswith("records 1000\n"), done.stdout
    assert processes.wait_gone(processes.of_cluster(tmp_path / "headwater-data"), ENDED_S) == []
