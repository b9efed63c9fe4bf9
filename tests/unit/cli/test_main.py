"""The `headwater` command: errors as one line, exit codes, help, shell completion."""

from __future__ import annotations

import socket
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import cast

import click
import pytest

from headwater.cli.main import main
from headwater.cli.options import bootstrap_servers
from headwater.cli.settings import parse_settings
from headwater.errors import ErrorCode, HeadwaterError, KafkaError, UsageError
from headwater.wire.schema import SchemaError


class FakeEntry:
    """An entry point whose command does one thing."""

    def __init__(self, action: object) -> None:
        self.value = "test"
        self._action = action

    def load(self) -> click.Command:
        if isinstance(self._action, ImportError):
            raise self._action

        @click.command("act")
        def act() -> object:
            if isinstance(self._action, BaseException):
                raise self._action
            return self._action

        return act


def run(action: object) -> int:
    return main(["act"], entries=lambda: {"act": cast(EntryPoint, FakeEntry(action))})


@pytest.mark.parametrize(
    ("action", "code", "line"),
    [
        (UsageError("--port 1:\n give more"), 2, "headwater: --port 1: give more\n"),
        (HeadwaterError("it broke"), 1, "headwater: it broke\n"),
        (
            KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "no topic x"),
            1,
            "headwater: UNKNOWN_TOPIC_OR_PARTITION: no topic x\n",
        ),
        (OSError(28, "No space left on device", "/data"), 1, "No space left on device (/data)\n"),
        (
            UnicodeEncodeError("utf-8", "caf\udce9", 3, 4, "surrogates not allowed"),
            2,
            "headwater: 'caf\\udce9' is not text in UTF-8",
        ),
        (
            UnicodeEncodeError("ascii", "caf\u00e9", 3, 4, "ordinal not in range"),
            2,
            "cannot be written as ascii: use a locale with UTF-8",
        ),
        (
            SchemaError("MetadataResponse v12: 3 bytes left over"),
            1,
            "left over: is there a",
        ),
        (KeyboardInterrupt(), 130, ""),
        (ModuleNotFoundError("No module named 'grpc'", name="grpc"), 2, "needs grpc"),
        (None, 0, ""),
        (1, 1, ""),
    ],
)
def test_every_expected_error_is_one_line(
    capsys: pytest.CaptureFixture[str],
    action: object,
    code: int,
    line: str,
) -> None:
    assert run(action) == code
    shown = capsys.readouterr().err.lstrip()
    assert line in shown
    assert shown.count("\n") <= 1


@pytest.mark.parametrize("arguments", [["stat"], ["--nonsense"], ["up", "--brokers", "many"]])
def test_bad_arguments_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith("headwater: ")


def test_a_near_name_is_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic"]) == 2
    assert "topics" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "page"),
    [
        (["topics", "foo"], "topics"),
        (["topics", "create"], "topics create"),
        (["topics", "list", "--nope"], "topics list"),
        (["topics", "list", "more"], "topics list"),
    ],
)
def test_words_that_a_command_does_not_know_lead_to_its_help(
    arguments: list[str], page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    shown = capsys.readouterr().err
    assert f"See headwater {page} --help." in shown and shown.count("\n") == 1


def test_a_file_where_a_folder_is_expected_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It said to restore or remove a file in it."""
    path = tmp_path / "file"
    path.touch()
    assert main(["status", "--dir", str(path)]) == 2
    assert f"{path} is a file: name a cluster's folder" in capsys.readouterr().err


def test_a_command_shows_which_cluster_it_waits_for(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten seconds without a word."""
    with socket.socket() as taken:  # bound, so that no other process listens there
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        asked = ["groups", "list", "--bootstrap-server", address, "--timeout", "2500"]
        assert main(asked) == 1
    waiting, ended = capsys.readouterr().err.splitlines()
    assert "waiting for up to 2.5 s" in waiting and address in waiting
    assert "BROKER_NOT_AVAILABLE" in ended and address in ended


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert "headwater" in capsys.readouterr().out


def test_the_shell_completes_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("_HEADWATER_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "headwater topics cre")
    monkeypatch.setenv("COMP_CWORD", "2")
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0 and capsys.readouterr().out == "plain,create\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_documented_shell_gets_its_completion(
    shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "operating.md").read_text()
    assert f"_HEADWATER_COMPLETE={shell}_source headwater" in page
    monkeypatch.setenv("_HEADWATER_COMPLETE", f"{shell}_source")
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 0
    assert f"_HEADWATER_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_bootstrap_servers_come_from_option_environment_or_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWATER_BOOTSTRAP_SERVERS", "b:1")
    assert bootstrap_servers("a:1", str(tmp_path)) == "a:1"
    assert bootstrap_servers(None, str(tmp_path)) == "b:1"
    with pytest.raises(UsageError, match="--bootstrap-server is empty"):
        bootstrap_servers("", str(tmp_path))
    monkeypatch.delenv("HEADWATER_BOOTSTRAP_SERVERS")
    with pytest.raises(UsageError, match="headwater up"):
        bootstrap_servers(None, str(tmp_path))


def test_settings_are_key_value() -> None:
    assert parse_settings(["a=1", "b=x=y"], "--set") == {"a": "1", "b": "x=y"}
    for bad in (["a"], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(UsageError, match="--set"):
            parse_settings(bad, "--set")
