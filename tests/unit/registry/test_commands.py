"""`headwater registry`: what its commands print, and the options that they refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headwater.cli.main import run_command
from headwater.errors import UsageError
from headwater.sockets import is_loopback
from headwater_gateway.registry import remote
from headwater_gateway.registry.command import exposure_options, registry
from headwater_gateway.serving.server import Listener, check_exposure
from unit.registry.registries import Registry, record


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """A registry that answers the commands without a socket."""
    found = Registry()

    def ask(_self: Any, method: str, path: str, body: Any = None) -> Any:
        told = found.ask(method, path, body)
        if isinstance(told, list) and told[:1] and told[0] in (404, 409, 422):
            raise remote.RemoteError(told[2], told[1])
        return told

    monkeypatch.setattr(remote.RemoteRegistry, "ask", ask)
    return found


def run(*words: str) -> int:
    return run_command(registry, list(words), "registry")


def test_a_schema_is_registered_shown_and_listed(
    served: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.avsc"
    file.write_text(json.dumps(record("a")))
    assert run("register", "s", str(file)) == 0
    assert run("subjects") == 0
    assert run("schema", "s", "--version", "1") == 0
    assert run("schema", "--id", "1", "--json") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["1", "s"]
    assert json.loads(lines[2]) == record("a")
    assert json.loads(json.loads("".join(lines[3:]))["schema"]) == record("a")


def test_a_check_tells_why_and_exits_with_1(
    served: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    served.register("s", record("a"))
    file = tmp_path / "b.avsc"
    file.write_text(json.dumps(record("a", "b")))
    assert run("check", "s", str(file)) == 1
    out = capsys.readouterr().out
    assert out.startswith("does not fit\n") and "READER_FIELD_MISSING_DEFAULT_VALUE" in out
    file.write_text(json.dumps(record("a")))
    assert run("check", "s", str(file)) == 0


def test_errors_are_one_line(
    served: Registry, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("schema", "none") == 1
    assert run("schema") == 2
    assert run("schema", "s", "--id", "1") == 2
    assert run("register", "s", str(tmp_path / "missing")) == 2
    assert run("subjects", "--url", "ftp://x") == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["headwater:"] * 5
    assert "Subject 'none' not found." in lines[0]


def test_a_password_goes_to_this_machine_or_encrypted() -> None:
    login = {"sasl.username": "ann", "sasl.password": "secret"}
    remote.RemoteRegistry("http://127.0.0.1:8081", login)
    remote.RemoteRegistry("http://registry.example:8081", {})
    with pytest.raises(UsageError, match="in clear") as refused:
        remote.RemoteRegistry("http://ann:secret@registry.example:8081", {})
    assert "secret" not in str(refused.value)
    with pytest.raises(UsageError, match="in clear"):
        remote.RemoteRegistry("http://registry.example:8081", login)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.9.9.9"])
def test_on_loopback_nothing_is_needed(host: str) -> None:
    assert is_loopback(host)
    check_exposure(Listener(host, 8081), exposure_options(host), has_login=False)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "registry.example"])
def test_off_loopback_tls_and_a_login_are_needed(host: str) -> None:
    import ssl

    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with pytest.raises(UsageError, match="in clear"):
        check_exposure(Listener(host, 8081), exposure_options(host), has_login=True)
    with pytest.raises(UsageError, match="no login"):
        check_exposure(Listener(host, 8081, tls), exposure_options(host), has_login=False)
    check_exposure(Listener(host, 8081, tls), exposure_options(host), has_login=True)
    assert Listener(host, 8081, tls).url.startswith("https://")
