"""The notebook of the city: every cell runs twice, and its own assertions hold."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from headwater.local import processes
from integration.jvm_tools import SHORT_LIVED_JVM

pytestmark = [pytest.mark.integration, pytest.mark.long]

NOTEBOOK = Path(__file__).resolve().parents[2] / "notebooks" / "city.ipynb"
TIMEOUT_S = 400


@pytest.mark.timeout(TIMEOUT_S + 30)
def test_every_cell_runs_twice(
    tmp_path: Path, free_base_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    options = os.environ.get("SPARK_SUBMIT_OPTS", SHORT_LIVED_JVM)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", options)
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    *code, stop = [cell for cell in notebook.cells if cell.cell_type == "code"]
    given = "brokers=3)"
    assert code[0].source.count(given) == 1
    code[0].source = code[0].source.replace(given, f"brokers=3, port={free_base_port})")
    again = [nbformat.v4.new_code_cell(cell.source) for cell in code]
    notebook.cells = [*code, *again, stop]
    NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    for cells in (code, again):
        shown = "".join(o.get("text", "") for cell in cells for o in cell.outputs)
        assert "20 of 20 planted clones" in shown
    assert processes.of_cluster(tmp_path / "headwater-data") == []
