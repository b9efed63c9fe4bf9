"""`headwater verify-sink` finds each way in which brokers, checkpoint and table may disagree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headwater_spark.sink_verification import (
    CheckpointFacts,
    KeyCounts,
    SinkFacts,
    TableCommit,
    TableFacts,
    duplicate_keys,
    key_problems,
    sink_problems,
    table_problems,
)

CHECKPOINT = CheckpointFacts("q", planned=2, committed=2)
SINK = SinkFacts("q", last_epoch=2, ticket=5)
COMMITS = (
    TableCommit(1, 0, 1),
    TableCommit(2, 1, 2),
    TableCommit(3, None, 4),
    TableCommit(4, 2, 5),
)
TABLE = TableFacts(COMMITS, app_version=5)


def test_what_agrees_has_no_problems() -> None:
    assert sink_problems(SINK, CHECKPOINT) == []
    assert table_problems(SINK, TABLE) == []
    assert sink_problems(None, CheckpointFacts("q", None, None)) == []
    assert table_problems(None, TableFacts((), None)) == []


def test_a_crash_before_sparks_commit_log_is_no_problem() -> None:
    assert sink_problems(SINK, replace(CHECKPOINT, committed=1)) == []
    first = replace(SINK, last_epoch=0)
    assert sink_problems(first, CheckpointFacts("q", planned=0, committed=None)) == []


@pytest.mark.parametrize(
    ("sink", "checkpoint", "words"),
    [
        (replace(SINK, last_epoch=1), CHECKPOINT, "last epoch is 1, the checkpoint's last"),
        (replace(SINK, last_epoch=4), CHECKPOINT, "last epoch is 4"),
        (SINK, replace(CHECKPOINT, committed=1, planned=1), "last epoch is 2"),
        (replace(SINK, last_epoch=None), CHECKPOINT, "last epoch is none"),
        (replace(SINK, owner="other"), CHECKPOINT, "belongs to query other"),
        (replace(SINK, undecided=((3, "Prepared"),)), CHECKPOINT, "epoch 3 is Prepared"),
        (None, CHECKPOINT, "know no such sink"),
    ],
)
def test_sink_and_checkpoint(
    sink: SinkFacts | None, checkpoint: CheckpointFacts, words: str
) -> None:
    [problem] = sink_problems(sink, checkpoint)
    assert words in problem


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (replace(TABLE, commits=(*COMMITS, TableCommit(5, 2, 5))), "more than once: 2"),
        (replace(TABLE, commits=(COMMITS[0], *COMMITS[2:])), "lacks 1 epochs: 1"),
        (replace(TABLE, commits=COMMITS[:3], app_version=4), "last epoch is 2, the table's 1"),
        (replace(TABLE, app_version=9), "app transaction is 9"),
        (replace(TABLE, commits=(COMMITS[1], COMMITS[0], COMMITS[3])), "out of order"),
    ],
)
def test_sink_and_table(table: TableFacts, words: str) -> None:
    [problem] = table_problems(SINK, table)
    assert words in problem


def test_a_history_that_was_cleaned_is_judged_by_what_is_left() -> None:
    assert table_problems(SINK, replace(TABLE, commits=COMMITS[2:])) == []


@pytest.mark.parametrize(
    ("topics", "table", "words"),
    [
        ({"a": 1, "b": 1}, {"a": 1}, "in the topics only: b"),
        ({"a": 1}, {"a": 1, "b": 1}, "in the table only: b"),
        ({"a": 2}, {"a": 1}, "not as often"),
        ({"a": 1}, {"a": 2}, "not as often"),
    ],
)
def test_keys(topics: dict[object, int], table: dict[object, int], words: str) -> None:
    [problem] = key_problems(KeyCounts(topics, table))
    assert words in problem
    assert key_problems(KeyCounts(table, table)) == []


def test_a_merged_table_has_each_key_once() -> None:
    assert key_problems(KeyCounts({"a": 3}, {"a": 1}, is_merged=True)) == []
    [problem] = key_problems(KeyCounts({"a": 3}, {"a": 2}, is_merged=True))
    assert "more than once: a" in problem


def test_duplicates_without_a_table() -> None:
    assert duplicate_keys({"a": 1}) == []
    (problem,) = duplicate_keys({"a": 2, "b": 1})
    assert problem.startswith("1 keys are in the topics more than once: a. Where keys may repeat,")
