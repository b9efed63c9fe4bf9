"""The status port's guard: DNS rebinding, bearer tokens; and when a port needs one."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from headwater.errors import UsageError
from headwater.security.bearer_token import TokenFile
from headwater_broker.app.config import from_properties
from headwater_broker.app.status_security import status_security
from headwater_broker.network.http_guard import HttpGuard
from headwater_broker.network.http_request import BadRequestError, HttpRequest, parse_head

TOKEN = "t0ken-of-the-scraper"


def asked(host: str, authorization: str = "") -> HttpRequest:
    return HttpRequest("/", keep_alive=True, host=host, authorization=authorization)


def status_of(guard: HttpGuard, request: HttpRequest) -> int:
    try:
        guard.check(request)
    except BadRequestError as error:
        return error.status
    return 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:9100", 200),
        ("10.0.0.7", 200),
        ("[::1]:9100", 200),
        ("localhost:9100", 200),
        ("Broker-1.Example.:9100", 200),
        ("evil.example:9100", 421),
        ("127.0.0.1.evil.example", 421),
        ("localhost.evil.example", 421),
        ("broker-1.example@evil.example", 421),
        ("[evil.example]", 421),
        (":9100", 421),
    ],
)
def test_dns_rebinding_is_refused(host: str, status: int) -> None:
    """A stranger's page reaches the port under the stranger's name only."""
    assert status_of(HttpGuard(["broker-1.example"]), asked(host)) == status


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        (f"Bearer {TOKEN}", 200),
        (f"bearer  {TOKEN} ", 200),
        ("", 401),
        ("Bearer ", 401),
        (f"Bearer {TOKEN}x", 401),
        (f"Bearer {TOKEN[:-1]}", 401),
        (f"Basic {TOKEN}", 401),
        (TOKEN, 401),
    ],
)
def test_a_request_shows_the_token(authorization: str, status: int) -> None:
    guard = HttpGuard(token=lambda: TOKEN)
    assert status_of(guard, asked("127.0.0.1", authorization)) == status


def test_an_empty_token_lets_nobody_in() -> None:
    assert status_of(HttpGuard(token=lambda: ""), asked("127.0.0.1", "Bearer ")) == 401


def test_two_authorizations_are_refused_and_none_is_shown() -> None:
    head = b"GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer a\r\n"
    with pytest.raises(BadRequestError, match="authorization occurs twice"):
        parse_head(head + b"Authorization: Bearer b\r\n\r\n")
    assert "Bearer" not in repr(parse_head(head + b"\r\n"))


def test_a_changed_token_file_is_read_again_and_a_lost_one_keeps_the_token(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    token = TokenFile("status.bearer.token.file", str(path))
    assert token() == TOKEN
    path.write_text(f"{TOKEN}-2")
    assert token() == f"{TOKEN}-2"
    path.unlink()
    assert token() == f"{TOKEN}-2"


SECURE = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}


def check(rows: dict[str, str]) -> None:
    status_security(
        from_properties(
            {"broker.id": "1", "log.dir": "/tmp/x", "listeners": "PLAINTEXT://h:1", **rows}
        )
    )


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.7", "broker-1.example", "[::]"])
def test_the_wide_status_port_of_a_secure_cluster_needs_a_guard(
    host: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wide = {"status.listener": f"{host}:9100"}
    with pytest.raises(UsageError, match=r"set status\.bearer\.token\.file"):
        check({**SECURE, **wide})
    token = tmp_path / "token"
    token.write_text(TOKEN)
    check({**SECURE, **wide, "status.bearer.token.file": str(token)})
    assert not caplog.records
    with caplog.at_level(logging.WARNING):
        check(wide)  # an open cluster has no secrets to keep: it is only told
    assert "everybody who reaches" in caplog.text


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_loopback_needs_no_guard(host: str) -> None:
    check({**SECURE, "status.listener": f"{host}:9100"})


def test_a_token_that_is_guessed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("short")
    with pytest.raises(UsageError, match="fewer than 16 characters") as caught:
        check({"status.bearer.token.file": str(tmp_path / "token")})
    assert "short" not in str(caught.value)
    with pytest.raises(UsageError, match=r"cannot read .*No such file"):
        check({"status.bearer.token.file": str(tmp_path / "none")})
