"""The notebook, executed as a reader would, in a folder of its own."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from headwater.local import processes
from integration.jvm_tools import SHORT_LIVED_JVM

pytestmark = pytest.mark.integration

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "first_five_minutes.ipynb"
README_CELL_LINES = 12
TIMEOUT_S = 300
"""Two minutes on two cores that have little else to do."""


def load() -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOK, as_version=4)


def test_it_is_stored_without_outputs_and_its_first_cell_is_short() -> None:
    notebook = load()
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in code)
    assert len(code[0].source.splitlines()) == README_CELL_LINES


@pytest.mark.timeout(TIMEOUT_S + 30)
def test_it_runs(tmp_path: Path, free_base_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = load()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    # Only the port is not the reader's: 9092 may be taken on the machine that runs the tests.
    given = "brokers=3)"
    assert code[0].source.count(given) == 1
    code[0].source = code[0].source.replace(given, f"brokers=3, port={free_base_port})")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    (tmp_path / "conf").mkdir()
    options = f"spark.executor.defaultJavaOptions {SHORT_LIVED_JVM}\n"
    (tmp_path / "conf" / "spark-defaults.conf").write_text(options)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    started = time.monotonic()
    NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    took = time.monotonic() - started
    shown = "".join(o.get("text", "") for cell in code for o in cell.outputs)
    assert "12,000 records acknowledged" in shown
    assert "the second run added 0" in shown
    assert "12,500 records, 12,500 distinct offsets" in shown
    assert processes.of_cluster(tmp_path / "headwater-data") == []
    print(f"the notebook took {took:.0f} s")
