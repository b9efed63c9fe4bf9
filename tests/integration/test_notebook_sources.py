"""The notebooks in Databricks' source form."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.cluster import LocalCluster
from integration.spark_sessions import spark_session
from notebook_sources import NOTEBOOKS, code_cells, source_form

pytestmark = pytest.mark.integration

ORDERS = NOTEBOOKS / "orders_on_databricks.py"


@pytest.mark.parametrize("notebook", sorted(NOTEBOOKS.glob("*.ipynb")), ids=lambda path: path.stem)
def test_each_ipynb_has_its_source_form(notebook: Path) -> None:
    found = notebook.with_suffix(".py").read_text()
    assert found == source_form(notebook), "stale: run `python tests/notebook_sources.py`"
    cells = code_cells(found)
    assert len(cells) >= 5
    for number, cell in enumerate(cells):
        compile(cell, f"{notebook.stem}, cell {number}", "exec")


@pytest.mark.long
@pytest.mark.timeout(300)
def test_orders_run_twice(
    shared_cluster: LocalCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As on Databricks: `spark` is there, and each cell runs in the notebook's one namespace."""
    monkeypatch.setenv("HEADWATER_BOOTSTRAP_SERVERS", shared_cluster.bootstrap)
    monkeypatch.setenv("ORDERS_FOLDER", str(tmp_path))
    cells = code_cells(ORDERS.read_text())
    with spark_session("local[2]", delta=True) as spark:
        namespace = {"spark": spark, "__name__": "__main__"}
        for _ in range(2):
            for number, cell in enumerate(cells):
                exec(compile(cell, f"{ORDERS.name}, cell {number}", "exec"), namespace)
            shown = capsys.readouterr().out
            assert "1000 rows, 1000 orders" in shown
            assert "100 alerts, 100 distinct, 100 due" in shown
