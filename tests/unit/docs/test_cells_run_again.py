"""README's Spark cell and the notebook's cells that produce: run again, they add no records.

`headwater_spark` is a double here, whose cluster is a broker in this process. With Spark
`tests/integration/test_notebook.py` runs all of it.
"""

from __future__ import annotations

import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import Mock

import nbformat
import pandas as pd
import pytest

from docs_pages import ROOT
from headwater_broker.testing import InProcessBroker

NOTEBOOK = ROOT / "notebooks" / "first_five_minutes.ipynb"
HOURS = range(5, 24)


@pytest.fixture
def cluster(headwater_broker: InProcessBroker, monkeypatch: pytest.MonkeyPatch) -> InProcessBroker:
    double: Any = ModuleType("headwater_spark")
    running = SimpleNamespace(bootstrap_servers=headwater_broker.bootstrap, brokers=())
    double.session = double.table = double.tier = Mock()
    double.Cluster = SimpleNamespace(start=lambda spark, brokers: running)
    monkeypatch.setitem(sys.modules, "headwater_spark", double)
    return headwater_broker


def run(source: str, names: dict[str, Any]) -> None:
    exec(compile(source, "cell", "exec", dont_inherit=True), names)


def cell(beginning: str) -> str:
    """The cell of the notebook that begins like this."""
    found = [c.source for c in nbformat.read(NOTEBOOK, as_version=4).cells]
    (source,) = (text for text in found if text.startswith(beginning))
    return str(source)


def records(broker: InProcessBroker, topic: str) -> int:
    with broker.admin() as admin:
        ends = admin.list_offsets({(topic, partition): -1 for partition in range(3)})
    return sum(end.offset for end in ends.values())


def test_readmes_cell(cluster: InProcessBroker) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (source,) = (block for block in blocks if "headwater_spark.session" in block)
    for _ in range(2):
        run(source, {})
    assert records(cluster, "departures") == 1000


def test_the_notebooks_cells(cluster: InProcessBroker, capsys: pytest.CaptureFixture[str]) -> None:
    runs: tuple[dict[str, Any], ...] = ({}, {})
    for names in runs:
        for beginning in ("import headwater_spark", "import json") * 2:
            run(cell(beginning), names)
    assert records(cluster, "hello") == 1000
    shown = [line.partition(" records")[0] for line in capsys.readouterr().out.splitlines()]
    assert shown == ["12,000", "0", "0", "0"] and records(cluster, "flights") == 12_000


def test_the_notebooks_chart_has_whole_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    source = cell("import matplotlib")
    import_, _, drawn = source.partition("\nby_hour = (")
    names: dict[str, Any] = {"by_hour": pd.DataFrame({"hour": HOURS, "delay": 1.5})}
    run(import_ + "\n" + drawn[drawn.index("figure, axes") :], names)
    assert [float(tick) for tick in names["axes"].get_xticks()] == list(HOURS)
