"""The shipped dashboard and alerts name metrics that exist, and the docs name the alerts."""

from __future__ import annotations

import re

import pytest
import yaml

from docs_pages import DOCS, ROOT, families_of_a_broker
from grafana_dashboard import FILE, dashboard, text
from headwater.operations.lag_exporter.collector import families
from headwater.operations.lag_exporter.facts import ClusterFacts
from headwater.operations.mirror_metrics import families as mirror_families

RULES = ROOT / "conf" / "prometheus" / "headwater.rules.yml"
NAME = re.compile(r"\b(?:headwater|kafka|process)_[a-z_]+")
SUFFIX = re.compile(r"_(bucket|count|sum|total)$")


def known() -> set[str]:
    """Names of families, without the endings of their samples."""
    found = {family.name for family in families_of_a_broker()}
    exporter = {family.name for family in families(ClusterFacts())}
    mirror = {family.name for family in mirror_families("1", {})}
    return found | exporter | mirror | {"headwater_lag_exporter_up"}


def rules() -> list[dict[str, str]]:
    return [
        rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
    ]


def queries() -> list[str]:
    panels = [
        target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())
    ]
    return panels + [rule["expr"] for rule in rules()]


def test_the_dashboard_is_what_its_lines_say() -> None:
    assert FILE.read_text() == text(), "conf/grafana/headwater.json is stale: run `make docs`"


@pytest.mark.parametrize("query", queries())
def test_each_metric_of_a_query_exists(query: str) -> None:
    names = known()
    for name in NAME.findall(query):
        assert name in names or SUFFIX.sub("", name) in names, f"{name} in {query}"


def test_the_docs_explain_each_alert() -> None:
    page = (DOCS / "observability.md").read_text()
    assert [rule["alert"] for rule in rules() if f"`{rule['alert']}`" not in page] == []
