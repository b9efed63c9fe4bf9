"""`headwater users add`: where the password comes from, and which one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from headwater.cli.users import users
from headwater.errors import UsageError


def add(path: str, typed: str | None = None) -> None:
    """As far as the password; no broker is asked."""
    words = ["add", "alice", "--password-file", path, "--bootstrap-server", "127.0.0.1:1"]
    CliRunner().invoke(users, words, input=typed, catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("\nsecond\n", "its first line is empty"),
        ("env:PASSWORD\n", r"begins as a reference to one \(env:, .*choose another"),
        (" file:/tmp/secret\n", "begins as a reference"),
        ("databricks:scope/key\n", "begins as a reference"),
    ],
)
def test_a_password_that_no_client_could_send_is_refused(
    tmp_path: Path, text: str, told: str
) -> None:
    path = tmp_path / "password"
    path.write_text(text)
    for file, typed in ((str(path), None), ("-", text)):
        with pytest.raises(UsageError, match=told) as refused:
            add(file, typed)
        assert "\n" not in str(refused.value)
        assert "second" not in str(refused.value) and "scope/key" not in str(refused.value)


def test_without_a_file_and_a_terminal_the_remedy_is_named() -> None:
    with pytest.raises(UsageError, match="give --password-file FILE or -"):
        CliRunner().invoke(users, ["add", "alice"], catch_exceptions=False, standalone_mode=False)
