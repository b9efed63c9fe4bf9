"""The advice for a missing optional dependency must work: no package index has Headwater."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from headwater.cli.main import COMMAND_GROUP, RUNTIME_EXTRA, main
from headwater.errors import EXIT_USAGE
from headwater.extras import install_hint
from headwater.local import zookeeper

ROOT = Path(__file__).resolve().parents[3]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def test_no_advice_is_to_install_from_an_index() -> None:
    """Code, pages and notebooks name the extras of the clone."""
    found = []
    for folder in ("platform", "tiered_storage", "broker_service", "spark_integration", "docs"):
        paths = [p for p in (ROOT / folder).rglob("*") if p.suffix in (".py", ".md")]
        found += [p.name for p in paths if re.search(r"pip install .?.?headwater", p.read_text())]
    found += [p.name for p in ROOT.glob("notebooks/*.ipynb") if "headwater[" in p.read_text()]
    assert found == []


def test_a_command_without_its_parts_says_how_to_get_them(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lost = EntryPoint("lost", "headwater_lost.command:lost", COMMAND_GROUP)
    assert main(["lost"], entries=lambda: {"lost": lost}) == EXIT_USAGE
    shown = capsys.readouterr().err
    assert "`headwater lost` needs headwater_lost" in shown
    assert install_hint(RUNTIME_EXTRA) in shown and RUNTIME_EXTRA in EXTRAS


def test_zookeeper_without_pyspark_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(Exception, match=re.escape("pip install '.[spark]'")):
        zookeeper.zookeeper_jars()
