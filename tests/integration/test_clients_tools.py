"""Kafka's own command-line tools against our cluster, and on our files: a fair part of all uses."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.cluster import LocalCluster
from integration.kafka_tools import USES, Use
from integration.tool_bench import Bench

pytestmark = pytest.mark.integration


FIRST = {"topics", "topic_configs", "client_quotas", "group_descriptions", "log_dirs", "offsets"}
"""One use of each kind of tool; each takes seconds of a JVM's start."""


@pytest.mark.parametrize(
    "use",
    [
        pytest.param(
            use,
            id=f"{use.script} {use.run.__name__}",
            marks=() if use.run.__name__ in FIRST else pytest.mark.long,
        )
        for use in USES
        if use.tested
    ],
)
def test_kafkas_tools(shared_cluster: LocalCluster, tmp_path: Path, use: Use) -> None:
    use.run(Bench(shared_cluster, tmp_path))
