"""Kafka's own command-line tools against our cluster, and on our files: a fair part of all uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.cluster import LocalCluster
from integration.kafka_tools import USES, Use
from integration.tool_bench import Bench

pytestmark = pytest.mark.integration


@pytest.mark.parametrize(
    "use", [u for u in USES if u.tested], ids=lambda use: f"{use.script} {use.run.__name__}"
)
def test_kafkas_tools(shared_cluster: LocalCluster, tmp_path: Path, use: Use) -> None:
    use.run(Bench(shared_cluster, tmp_path))
