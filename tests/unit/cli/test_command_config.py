"""`--command-config FILE`, its variable and the cluster folder's file; Java's properties syntax."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from headwater.cli.command_config import client_properties
from headwater.cli.main import main, registered_commands
from headwater.cli.options import bootstrap_options
from headwater.config.java_properties import parse_java_properties
from headwater.errors import UsageError

FILE = """\
# a comment
! another
bootstrap.servers=a:1
security.protocol : SASL_PLAINTEXT
sasl.mechanism PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
    username=\\"alice\\" \\
    password="p\\u0061ss=:\\\\";
"""


def test_the_syntax_is_that_of_java() -> None:
    assert parse_java_properties(FILE, "f") == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="alice" password="pass=:\\";',
    }
    assert parse_java_properties("a=1\na=2\nb\n", "f") == {"a": "2", "b": ""}
    with pytest.raises(UsageError, match="four hexadecimal digits"):
        parse_java_properties("a=\\u00g1", "f")


@click.command()
@bootstrap_options
def shows(bootstrap_server: str | None, directory: str) -> None:
    click.echo(sorted(client_properties()))


def test_the_option_wins_over_the_variable_and_that_over_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEADWATER_COMMAND_CONFIG", raising=False)
    monkeypatch.delenv("HEADWATER_BOOTSTRAP_SERVERS", raising=False)
    (tmp_path / "security").mkdir()
    (tmp_path / "security" / "client.properties").write_text("security.protocol=SSL\n")
    (tmp_path / "other").write_text("sasl.mechanism=PLAIN\n")
    (tmp_path / "third").write_text("ssl.protocol=TLSv1.3\nclient.id=x\n")

    def shown(*arguments: str) -> str:
        return CliRunner().invoke(shows, ["--dir", str(tmp_path), *arguments]).stdout.strip()

    assert shown() == "['security.protocol']"
    assert shown("--bootstrap-server", "a:1") == "[]"
    monkeypatch.setenv("HEADWATER_COMMAND_CONFIG", str(tmp_path / "other"))
    assert shown() == "['sasl.mechanism']"
    assert shown("--command-config", str(tmp_path / "third")) == "['ssl.protocol']"


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["topics", "list"], "--command-config"),
        (["produce", "t", "v"], "--producer.config"),
        (["consume", "t"], "--consumer.config"),
    ],
)
def test_an_error_is_one_line_with_the_file(
    arguments: list[str], option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "p"
    file.write_text("sasl.mechanim=PLAIN\n")
    given = [*arguments, "--bootstrap-server", "127.0.0.1:1", option]
    assert main([*given, str(file)], registered_commands) == 2
    assert "did you mean sasl.mechanism?" in capsys.readouterr().err
    assert main([*given, str(tmp_path / "none")], registered_commands) == 2
    error = capsys.readouterr().err
    assert "none' cannot be read" in error and error.count("\n") == 1
