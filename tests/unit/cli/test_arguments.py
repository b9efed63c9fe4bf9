"""Arguments of commands: how they are parsed, and how wrong ones are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import click
import pytest

from headwater.cli.consume import consume
from headwater.cli.groups import groups
from headwater.cli.main import run_command
from headwater.cli.options import BOOTSTRAP_VARIABLE, DIRECTORY_DEFAULT, bootstrap_servers
from headwater.cli.partition_arguments import expand, parse_assignment, parse_ids, read_text
from headwater.cli.produce import produce
from headwater.cli.status import status
from headwater.cli.topics import topics
from headwater.cli.up import check_ensemble, check_properties
from headwater.client.admin.client import Admin
from headwater.errors import UsageError
from headwater.local import cluster_file


def test_partitions_are_named_by_topic_and_numbers() -> None:
    assert expand(cast(Admin, None), ["t:0,2", "u:1"], "--topic") == [("t", 0), ("t", 2), ("u", 1)]
    assert expand(cast(Admin, None), ["t:2,0,2", "t:0"], "--topic") == [("t", 2), ("t", 0)]
    assert parse_ids("3,1", "--brokers") == [3, 1]
    assert parse_assignment("1:2,2:3", "--replica-assignment") == [[1, 2], [2, 3]]


@pytest.mark.parametrize(("command", "name"), [(produce, "stdin"), (consume, "stdout")])
def test_a_closed_standard_stream_is_an_error_in_one_line(
    command: click.Command,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As of `headwater produce t <&-`: it ended with a traceback."""
    monkeypatch.setattr(f"sys.{name}", None)
    assert run_command(command, ["t", "--bootstrap-server", "127.0.0.1:1"]) == 2
    shown = capsys.readouterr().err
    assert "is closed" in shown and shown.count("\n") == 1


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: expand(cast(Admin, None), ["t:x"], "--topic"), "ids from 0 on with commas"),
        (lambda: expand(cast(Admin, None), [":1"], "--topic"), "TOPIC or TOPIC:0,2"),
        (lambda: parse_ids("1;2", "--brokers"), "--brokers '1;2'"),
        (lambda: parse_ids("1,-2", "--brokers"), "--brokers '1,-2'"),
        (lambda: parse_ids("99999999999", "--brokers"), "--brokers '99999999999'"),
        (lambda: expand(cast(Admin, None), ["t:99999999999"], "--topic"), "'99999999999'"),
        (lambda: parse_assignment("1:99999999999", "--replica-assignment"), "1:99999999999"),
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
        (
            ["reset-offsets", "g", "--topic", "t", "--to-latest", "--execute", "--dry-run"],
            "not both",
        ),
        (["reset-offsets", "g", "--to-latest", "--topic", "t", "--all-topics"], "or --all-topics"),
        (["describe", "g", "--dir", "{folder}"], "which cluster?"),
    ],
)
def test_groups_say_what_is_missing(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("HEADWATER_BOOTSTRAP_SERVERS", raising=False)
    given = [a.format(folder=tmp_path) for a in arguments]
    assert run_command(groups, given) == 2
    assert words in capsys.readouterr().err


BEYOND = "99999999999999999999"


@pytest.mark.parametrize(
    ("command", "arguments", "words"),
    [
        (topics, ["create", "t", "--partitions", BEYOND], "--partitions 9999"),
        (topics, ["create", "t", "--partitions", "2147483648"], "--partitions 2147483648"),
        (topics, ["create", "t", "--replication-factor", "32768"], "--replication-factor 32768"),
        (topics, ["create", "t", "--partitions", "-1"], "--partitions -1: give 1 or more"),
        (topics, ["create", "t", "--replication-factor", "-1"], "--replication-factor -1: give"),
        (topics, ["alter", "t", "--partitions", "2147483648"], "'--partitions': 2147483648"),
        (topics, ["alter", "t", "--partitions", "-5"], "'--partitions': -5"),
        (groups, ["list", "--state", "nope"], "--state 'nope' is no state"),
        (produce, ["t", "x", "--timestamp", BEYOND], "'--timestamp': 9999"),
        (produce, ["t", "x", "--key-separator", ""], "--key-separator is empty"),
        (produce, ["t", "x", "--timestamp", "-5"], "'--timestamp': -5"),
        (consume, ["t", "--from-timestamp", "-1"], "'--from-timestamp': -1"),
        (consume, ["t", "--from-timestamp", BEYOND], "'--from-timestamp': 9999"),
        (consume, ["t", "--partition", "2147483648"], "'--partition': 2147483648"),
        (consume, ["t", "--partition", "0", "--offset", BEYOND], "'--offset': 9999"),
    ],
)
def test_numbers_that_the_wire_cannot_carry_are_refused_by_name(
    command: click.Command, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """They ended in a traceback, or, as a timestamp, in a producer that waits for ever."""
    assert run_command(command, [*arguments, "--bootstrap-server", "127.0.0.1:1"]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["nope", "0001-01-01", "0001-01-01T00:00:00+14:00", "1969-12-31T23:59:59+00:00"]
)
def test_times_before_all_records_are_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """-1000 is not a time in the protocol, and -1 means the latest offset."""
    asked = ["reset-offsets", "g", "--topic", "t", "--to-datetime", text]
    assert run_command(groups, [*asked, "--bootstrap-server", "127.0.0.1:1"]) == 2
    assert f"'--to-datetime': '{text}'" in capsys.readouterr().err


def test_the_advice_to_start_a_cluster_names_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(BOOTSTRAP_VARIABLE, raising=False)
    for name, command in (
        ("my data", "`headwater up --dir 'my data'`"),
        (DIRECTORY_DEFAULT, "`headwater up`"),
    ):
        folder = tmp_path / name
        folder.mkdir()
        for _ in ("no cluster", "one that is down"):
            with pytest.raises(UsageError) as caught:
                bootstrap_servers(None, name)
            assert command in str(caught.value)
            cluster_file.save(folder, cluster_file.ClusterFile("c", 1, 9092))
        assert run_command(status, ["--dir", name]) == 1
        assert command in capsys.readouterr().out
