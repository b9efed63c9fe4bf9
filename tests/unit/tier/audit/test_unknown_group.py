"""`headwater audit` of a group that has committed nothing: a mistyped name is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater import Admin, NewTopic
from headwater.cli.main import main
from whole_cluster import ServedCluster


def test_a_group_without_offsets_is_named_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ServedCluster(tmp_path, 1) as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("flights", 1, 1)])
            admin.alter_group_offsets("delays", {("flights", 0): 0})
        groups = ["--group", "delays", "--group", "dealys"]
        code = main(["audit", "flights", *groups, "--bootstrap-server", cluster.bootstrap])
    assert code == 0
    told = capsys.readouterr().err.splitlines()
    assert told == ["headwater: group dealys has committed no offsets: see `headwater groups list`"]
