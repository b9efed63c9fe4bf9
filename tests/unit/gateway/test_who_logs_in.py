"""What a gateway or a registry does not start with: an identity that everyone would act with."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.cli.main import run_command
from headwater.errors import UsageError
from headwater_gateway.app.user_logins import users_log_in
from headwater_gateway.command import gateway
from headwater_gateway.console_command import console
from headwater_gateway.registry.command import registry

MUTUAL = {"security.protocol": "SSL", "ssl.truststore.location": "ca.pem",
          "ssl.keystore.location": "gateway.pem"}  # fmt: skip
BROKERS = ("--bootstrap-server", "127.0.0.1:1")


@pytest.fixture
def taken_port() -> Iterator[int]:
    """A server that starts all the same ends at once: it cannot listen here."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


@pytest.fixture
def properties(tmp_path: Path) -> str:
    path = tmp_path / "client.properties"
    path.write_text("".join(f"{key}={text}\n" for key, text in MUTUAL.items()))
    return str(path)


def test_a_certificate_of_its_own_needs_a_listener_where_users_log_in(
    properties: str, taken_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    listen = ("--listen", f"127.0.0.1:{taken_port}")
    own = ("--command-config", properties)
    serve = ("serve", "--port", str(taken_port))
    for command, words in ((gateway, listen), (console, listen), (registry, serve)):
        name = command.name or ""
        assert run_command(command, [*words, *BROKERS, *own], name) == 2
        told = capsys.readouterr().err
        assert "ssl.keystore.location" in told and "--user-bootstrap-server" in told


@pytest.mark.parametrize(
    ("properties", "users", "is_login"),
    [
        ({}, None, False),
        ({"security.protocol": "SSL", "ssl.truststore.location": "ca.pem"}, None, False),
        ({"security.protocol": "PLAINTEXT", "ssl.keystore.location": "x.pem"}, None, False),
        ({"security.protocol": "sasl_ssl", "ssl.keystore.location": "x.pem"}, None, True),
        (MUTUAL, "127.0.0.1:9093", True),
    ],
)
def test_where_users_log_in(properties: dict[str, str], users: str | None, is_login: bool) -> None:
    assert users_log_in(properties, users) is is_login


@pytest.mark.parametrize("key", ["ssl.keystore.key", "ssl.keystore.certificate.chain"])
def test_a_certificate_in_the_file_itself_counts_too(key: str) -> None:
    with pytest.raises(UsageError, match=key.replace(".", r"\.")):
        users_log_in({"security.protocol": "SSL", key: "-----BEGIN"}, None)


def test_a_proxy_before_an_open_cluster_is_refused(
    taken_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """It ends TLS for the whole network, and nobody would be asked who they are."""
    words = ["--listen", f"127.0.0.1:{taken_port}", "--trusted-proxy", "127.0.0.1", *BROKERS]
    assert run_command(gateway, words, "gateway") == 2
    told = capsys.readouterr().err
    assert "--trusted-proxy 127.0.0.1" in told and "no login" in told
