"""What commands show of odd names, and of what cannot be asked: three whole brokers."""

from __future__ import annotations

import time

import pytest

from headwater import Admin
from headwater.cli.options import Waits
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


def test_who_resets_offsets_is_told_which_leader_is_waited_for(c: ServedCluster) -> None:
    """It waited a minute without a word, and no option said for how long."""
    run(c, "topics", "create", "away", "--replica-assignment", "1,1")
    with Admin(c.bootstrap) as admin:
        admin.alter_group_offsets("g", {("away", 0): 0})
    c.stop(1)
    c.until(lambda: c.state("away").leader_id == -1, "nobody leads")
    began = time.monotonic()
    asked = ("reset-offsets", "g", "--topic", "away:0", "--to-earliest", "--timeout", "2500")
    waiting, ended = run(c, "groups", *asked, code=1).stderr.splitlines()
    assert time.monotonic() - began < 30, "a call may take 60 s"
    assert "waiting for up to 2.5 s" in waiting and "away-0 has no live leader" in waiting
    assert "LEADER_NOT_AVAILABLE" in ended and "away-0 has no live leader" in ended


def test_of_many_that_wait_the_first_few_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    waits = Waits()
    for n in range(100):
        waits(f"offsets of t-{n}: LEADER_NOT_AVAILABLE", 60_000)
    shown = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in shown] == [
        "waiting for up to 60 s: offsets of t-0: LEADER_NOT_AVAILABLE",
        "waiting for up to 60 s: offsets of t-1: LEADER_NOT_AVAILABLE",
        "waiting for up to 60 s: offsets of t-2: LEADER_NOT_AVAILABLE, and others",
    ]


UNKNOWN = [
    ("topics", "describe", "there", "never-made"),
    ("topics", "alter", "never-made", "--partitions", "2"),
    ("configs", "describe", "topic", "never-made"),
    ("configs", "alter", "topic", "never-made", "--set", "retention.ms=1000"),
    ("groups", "delete-offsets", "g", "--topic", "never-made"),
    ("groups", "reset-offsets", "g", "--topic", "never-made", "--to-latest"),
    ("groups", "reset-offsets", "g", "--topic", "never-made:0", "--to-latest"),
    ("reassign", "generate", "--topic", "never-made", "--brokers", "0"),
    ("elect", "preferred", "--partition", "never-made"),
]


def test_a_topic_that_does_not_exist_is_told_at_once(
    c: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    again: list[object] = []

    async def refresh(_: Cluster, topics: object) -> None:
        again.append(topics)

    run(c, "topics", "create", "there")
    monkeypatch.setattr(Cluster, "_refresh_if_possible", refresh)
    asked = ("reset-offsets", "g", "--topic", "there:0,9", "--to-latest")
    assert "there-9: the topic has partitions 0 to 0" in run(c, "groups", *asked, code=1).stderr
    for name, *arguments in UNKNOWN:
        told_why = run(c, name, *arguments, code=1).stderr
        assert "never-made" in told_why and "waiting" not in told_why, (name, told_why)
        assert again == [], (name, arguments)


def test_a_topic_that_one_broker_knows_is_not_told_to_be_none(
    c: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made by way of another broker just now: the one that is asked has not heard of it yet."""
    run(c, "topics", "create", "new", "--replica-assignment", "2", "--config", "retention.ms=1000")
    deaf = c.cluster.brokers[0].view.topics
    kept = deaf.pop("new")
    heard: list[object] = []
    refresh = Cluster._refresh_if_possible

    async def hear(self: Cluster, topics: list[str]) -> None:
        heard.append(topics)
        deaf["new"] = kept
        await refresh(self, topics)

    async def the_deaf_one(_: Cluster) -> int:
        return 0

    monkeypatch.setattr(Cluster, "_refresh_if_possible", hear)
    monkeypatch.setattr(Cluster, "any_node", the_deaf_one)
    found = told(c, "configs", "describe", "topic", "new")
    assert found["retention.ms"]["value"] == "1000" and heard
