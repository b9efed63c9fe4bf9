"""The output of commands: odd names, unknown topics, and what they wait for."""

from __future__ import annotations

import time
from typing import Any

import pytest

from headwater import Admin
from headwater.cli.console_tables import console, table
from headwater.cli.existing_topics import suggestion
from headwater.cli.options import WaitReport
from headwater.client.cluster import Cluster
from unit.cli.test_admin_commands import answer, c, run
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
    c.until(lambda: c.state("away").leader_id == -1, "it has no leader")
    began = time.monotonic()
    [group] = answer(c, "groups", "describe", "g")
    assert time.monotonic() - began < 30, "a call may take 60 s"
    shown = {
        row["topic"]: (row["committed"], row["end"], row["lag"]) for row in group["partitions"]
    }
    assert shown == {"here": (0, 0, 0), "away": (0, None, None)}


def test_reset_offsets_shows_which_leader_it_waits_for(c: ServedCluster) -> None:
    """It waited a minute without a word, and no option said for how long."""
    run(c, "topics", "create", "away", "--replica-assignment", "1,1")
    with Admin(c.bootstrap) as admin:
        admin.alter_group_offsets("g", {("away", 0): 0})
    c.stop(1)
    c.until(lambda: c.state("away").leader_id == -1, "it has no leader")
    began = time.monotonic()
    asked = ("reset-offsets", "g", "--topic", "away:0", "--to-earliest", "--timeout", "2500")
    waiting, ended = run(c, "groups", *asked, code=1).stderr.splitlines()
    assert time.monotonic() - began < 30, "a call may take 60 s"
    assert "waiting for up to 2.5 s" in waiting and "away-0 has no live leader" in waiting
    assert "LEADER_NOT_AVAILABLE" in ended and "away-0 has no live leader" in ended


def test_of_many_waits_the_first_few_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    waits = WaitReport()
    for n in range(100):
        waits(f"offsets of t-{n}: LEADER_NOT_AVAILABLE", 60_000)
    shown = capsys.readouterr().err.splitlines()
    assert [line.partition(": ")[2] for line in shown] == [
        "waiting for up to 60 s: offsets of t-0: LEADER_NOT_AVAILABLE",
        "waiting for up to 60 s: offsets of t-1: LEADER_NOT_AVAILABLE",
        "waiting for up to 60 s: offsets of t-2: LEADER_NOT_AVAILABLE, and others",
    ]


UNKNOWN = [
    ("consume", "never-made"),
    ("consume", "never-made", "--group", "g"),
    ("consume", "never-made", "--partition", "0", "--offset", "0"),
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


def test_a_topic_that_does_not_exist_is_an_error_at_once(
    c: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metadata is fetched once, not again and again until a time limit."""
    fetched: list[tuple[str, ...]] = []
    refresh = Cluster.refresh

    async def counted(self: Cluster, topics: Any, **options: Any) -> None:
        fetched.append(tuple(topics or ()))
        await refresh(self, topics, **options)

    run(c, "topics", "create", "there")
    monkeypatch.setattr(Cluster, "refresh", counted)
    asked = ("reset-offsets", "g", "--topic", "there:0,9", "--to-latest")
    assert "there-9: the topic has partitions 0 to 0" in run(c, "groups", *asked, code=1).stderr
    for name, *arguments in UNKNOWN:
        fetched.clear()
        reason = run(c, name, *arguments, code=1).stderr
        assert sum("never-made" in topics for topics in fetched) <= 1, (name, arguments)
        assert "never-made" in reason and "waiting" not in reason, (name, reason)
    assert answer(c, "topics", "list") == ["there"], "no look-up creates a topic"


NEAR = [
    ("consume", "flihgts", "--exit-at-end"),
    ("topics", "describe", "flihgts"),
    ("topics", "alter", "flihgts", "--partitions", "2"),
    ("topics", "delete", "flihgts"),
    ("configs", "describe", "topic", "flihgts"),
    ("configs", "alter", "topic", "flihgts", "--set", "retention.ms=1000"),
    ("groups", "reset-offsets", "g", "--topic", "flihgts", "--to-latest"),
    ("reassign", "generate", "--topic", "flihgts", "--brokers", "0"),
    ("elect", "preferred", "--partition", "flihgts"),
]


def test_a_typo_is_answered_with_the_nearest_topic(c: ServedCluster) -> None:
    """`consume` created the topic and exited with 0."""
    run(c, "topics", "create", "flights")
    for name, *arguments in NEAR:
        line = run(c, name, *arguments, code=1).stderr
        assert "flihgts" in line and "did you mean flights?" in line, (name, line)
        assert line.count("\n") == 1
    assert answer(c, "topics", "list") == ["flights"]
    beyond = run(c, "consume", "flights", "--partition", "7", code=1).stderr
    assert "flights-7: the topic has partitions 0 to 0" in beyond


@pytest.mark.parametrize(
    ("names", "hint"),
    [
        (["fligths"], "did you mean flights?"),
        (["flights", "wether"], "did you mean weather?"),
        (["nothing-like-it"], ""),
        (["flights"], ""),
    ],
)
def test_the_nearest_name_is_that_of_the_first_unknown_topic(names: list[str], hint: str) -> None:
    assert suggestion(names, ["flights", "weather", "delays"]) == hint


def test_a_topic_that_only_other_brokers_know_exists(
    c: ServedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made by way of another broker just now: the one that is asked has not heard of it yet."""
    run(c, "topics", "create", "new", "--replica-assignment", "2", "--config", "retention.ms=1000")
    deaf = c.cluster.brokers[0].view.topics
    kept = deaf.pop("new")
    refreshed: list[object] = []
    refresh = Cluster.refresh

    async def hear(self: Cluster, topics: Any, **options: Any) -> None:
        refreshed.append(topics)
        if len(refreshed) > 1:  # the first one is that of the bootstrap servers
            deaf["new"] = kept
        await refresh(self, topics, **options)

    async def the_deaf_one(_: Cluster) -> int:
        return 0

    monkeypatch.setattr(Cluster, "refresh", hear)
    monkeypatch.setattr(Cluster, "any_node", the_deaf_one)
    found = answer(c, "configs", "describe", "topic", "new")
    assert found["retention.ms"]["value"] == "1000" and len(refreshed) > 1
