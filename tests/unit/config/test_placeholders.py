"""Placeholders of a broker's own file: what they are replaced by, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.config.dynamic_check import StaticKeyError, check_dynamic
from headwater.config.placeholders import resolve_placeholders
from headwater.errors import UsageError


def test_variables_rows_of_files_and_whole_files(tmp_path: Path) -> None:
    (tmp_path / "secrets.properties").write_text("store=s1\n")
    (tmp_path / "key").write_text("k1\n")
    rows = {
        "a": "${env:NAME}!",
        "b": f"${{file:{tmp_path}/secrets.properties:store}}",
        "c": f"${{directory:{tmp_path}:key}}",
        "d": "$1 and ${other}",
    }
    assert resolve_placeholders(rows, {"NAME": "n1"}) == {
        "a": "n1!",
        "b": "s1",
        "c": "k1",
        "d": "$1 and ${other}",
    }


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("${env:MISSING}", "MISSING"),
        ("${file:/no/such:row}", "/no/such: No such file"),
        ("${file:/no/such}", "PATH:NAME"),
    ],
)
def test_what_is_missing_is_named_with_the_key(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=r"ssl\.key\.password") as caught:
        resolve_placeholders({"ssl.key.password": text}, {})
    assert told in str(caught.value)


def test_a_row_that_the_file_lacks(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("other=secret\n")
    with pytest.raises(UsageError, match="has no row") as caught:
        resolve_placeholders({"k": f"${{file:{tmp_path}/f:row}}"}, {})
    assert "secret" not in str(caught.value)


def test_a_running_broker_s_listener_may_get_another_store_but_no_secret() -> None:
    check_dynamic("listener.name.clients.ssl.keystore.location", "/new.pem")
    with pytest.raises(StaticKeyError):
        check_dynamic("listener.name.clients.ssl.keystore.password", "x")
    with pytest.raises(UsageError, match="no such broker key"):
        check_dynamic("listener.name.clients.ssl.keystore.place", "x")
