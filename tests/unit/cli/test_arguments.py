"""What commands make of their arguments before they ask a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from headwater.cli.groups import groups
from headwater.cli.main import run_command
from headwater.cli.partitions import expand, parse_assignment, parse_ids, read_text
from headwater.cli.up import check_ensemble, check_properties
from headwater.client.admin import Admin
from headwater.errors import UsageError


def test_partitions_are_named_by_topic_and_numbers() -> None:
    assert expand(cast(Admin, None), ["t:0,2", "u:1"], "--topic") == [("t", 0), ("t", 2), ("u", 1)]
    assert parse_ids("3,1", "--brokers") == [3, 1]
    assert parse_assignment("1:2,2:3", "--replica-assignment") == [[1, 2], [2, 3]]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: expand(cast(Admin, None), ["t:x"], "--topic"), "ids with commas"),
        (lambda: expand(cast(Admin, None), [":1"], "--topic"), "TOPIC or TOPIC:0,2"),
        (lambda: parse_ids("1;2", "--brokers"), "--brokers '1;2'"),
        (lambda: parse_assignment("1-2", "--replica-assignment"), "1:2,2:3"),
        (lambda: read_text("/nowhere/plan.json"), "cannot read /nowhere/plan.json"),
        (lambda: check_properties({"broker.id": "1"}), "every broker has its own"),
        (lambda: check_properties({"num.partitions": "none"}), "num.partitions"),
        (lambda: check_properties({"zzz": "1"}), "no such broker key"),
        (lambda: check_ensemble("nowhere"), "HOST:PORT"),
        (lambda: check_ensemble("h:1/"), "HOST:PORT"),
        (lambda: check_ensemble("h:1,i"), "HOST:PORT"),
    ],
)
def test_bad_arguments_are_refused_in_words(call: Any, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        call()
    assert words in str(caught.value)


def test_good_ones_pass() -> None:
    check_ensemble("h:2181")
    check_ensemble("h:2181,i:2181/kafka/one")
    rows = {"num.partitions": "3", "log.retention.ms": "", "headwater.tables.option.region": "x"}
    assert check_properties(rows) == rows


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["reset-offsets", "g", "--topic", "t"], "exactly one of --to-earliest"),
        (["reset-offsets", "g", "--topic", "t", "--to-latest", "--shift-by", "1"], "exactly one"),
        (["reset-offsets", "g", "--to-latest"], "or --all-topics"),
        (["reset-offsets", "g", "--to-latest", "--topic", "t", "--all-topics"], "or --all-topics"),
        (["describe", "g", "--dir", "{folder}"], "which cluster?"),
    ],
)
def test_groups_say_what_is_missing(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [a.format(folder=tmp_path) for a in arguments]
    assert run_command(groups, given) == 2
    assert words in capsys.readouterr().err
