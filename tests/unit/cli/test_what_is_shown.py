"""What commands show of odd names, and of what cannot be asked: three whole brokers."""

from __future__ import annotations

import time

import pytest

from headwater import Admin
from headwater.cli.tables import console, table
from headwater.client.cluster import Cluster
from unit.cli.test_admin_commands import c, run, told
from whole_cluster import ServedCluster

__all__ = ["c"]
NAMES = ("app[prod]", "[/x]", "team:100:reader", "[fe80::1]:9092")


def test_texts_in_tables_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    """`[prod]` was left out, `[/x]` ended in a traceback, and `:100:` was a picture."""
    made = table(NAMES[0], "name, >size")
    for name in NAMES:
        made.add_row(name, "1")
    console().print(made)
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines[0].strip() == NAMES[0]
    shown = [line.removesuffix("1").strip() for line in lines if line.endswith("1")]
    assert shown == list(NAMES)


def test_a_group_is_described_though_a_partition_has_no_leader(c: ServedCluster) -> None:
    """It was waited for, a minute, and then nothing was shown."""
    run(c, "topics", "create", "here", "--replica-assignment", "0")
    run(c, "topics", "create", "away", "--replica-assignment", "1")
    with Admin(c.bootstrap) as admin:
        admin.alter_group_offsets("g", {("here", 0): 0, ("away", 0): 0})
    c.stop(1)
    c.until(lambda: c.state("away").leader_id == -1, "nobody leads")
    began = time.monotonic()
    [group] = told(c, "groups", "describe", "g")
    assert time.monotonic() - began < 30, "a call may take 60 s"
    shown = {
        row["topic"]: (row["committed"], row["end"], row["lag"]) for row in group["partitions"]
    }
    assert shown == {"here": (0, 0, 0), "away": (0, None, None)}


def test_a_topic_that_does_not_exist_is_told_at_once(
    c: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    again: list[object] = []

    async def refresh(_: Cluster, topics: object) -> None:
        again.append(topics)

    run(c, "topics", "create", "there")
    monkeypatch.setattr(Cluster, "_refresh_quietly", refresh)
    told_why = run(c, "topics", "describe", "there", "never-made", code=1).stderr
    assert "topic never-made does not exist" in told_why
    assert again == []
