"""PLAIN: what the message may be, and who is let in."""

from __future__ import annotations

import pytest

from headwater.errors import UsageError
from headwater.security.plain import PlainError, PlainExchange, parse_plain, verify_plain

USERS = {"alice": "wonder=land,;", "empty": ""}


def test_a_client_logs_in_with_name_and_password() -> None:
    exchange = PlainExchange("alice", "wonder=land,;")
    message = parse_plain(exchange.step(b""))
    assert (message.authorization_id, message.username) == ("", "alice")
    assert verify_plain(message, USERS)
    assert exchange.is_complete
    assert "wonder" not in repr(message)


@pytest.mark.parametrize("name", ["bob", "Alice", "alice ", "alice\u200b", "empty"])
def test_another_name_is_another_user(name: str) -> None:
    assert not verify_plain(parse_plain(f"\0{name}\0wonder=land,;".encode()), USERS)


def test_a_wrong_password_is_refused() -> None:
    for password in ("wonder", "wonder=land,;x", "WONDER=LAND,;", "x"):
        assert not verify_plain(parse_plain(f"\0alice\0{password}".encode()), USERS)


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (b"", "1 fields"),
        (b"alice\0pw", "2 fields"),
        (b"\0alice\0p\0w", "4 fields"),
        (b"\0ali\0ce\0pw", "4 fields"),
        (b"\0\0pw", "user name is empty"),
        (b"\0alice\0", "password is empty"),
        (b"root\0alice\0pw", "authorization id"),
        (b"\0alice\0\xff\xfe", "not UTF-8"),
    ],
)
def test_messages_that_are_refused(token: bytes, why: str) -> None:
    with pytest.raises(PlainError, match=why):
        parse_plain(token)


def test_an_authorization_id_may_repeat_the_user() -> None:
    assert verify_plain(parse_plain(b"alice\0alice\0wonder=land,;"), USERS)


@pytest.mark.parametrize(
    ("name", "password"), [("a\0root", "p"), ("a", "p\0"), ("", "p"), ("a", "")]
)
def test_a_client_refuses_what_the_message_cannot_hold(name: str, password: str) -> None:
    with pytest.raises(UsageError, match="NUL"):
        PlainExchange(name, password)
