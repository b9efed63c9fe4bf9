"""PLAIN (RFC 4616): one message with user name and password, Kafka's `PlainSaslServer` and client.

The password crosses the connection as it is: use PLAIN over TLS.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.errors import HeadwaterError, UsageError

PLAIN = "PLAIN"
"""The mechanism's registered name."""
_FIELDS = 3
"""Authorization id, user name, password."""


class PlainError(HeadwaterError):
    """A message that is not PLAIN's. The text is for the broker's log; it holds no password."""


@dataclass(frozen=True, slots=True)
class PlainMessage:
    """The client's one message."""

    authorization_id: str
    """The identity that the client wants to act as; empty: the user."""
    username: str
    password: str = field(repr=False)


def parse_plain(token: bytes) -> PlainMessage:
    """The message in `token`. Raises PlainError.

    As in Kafka, names and passwords are compared as they are sent, without SASLprep.
    """
    try:
        fields = token.decode("utf-8").split("\0")
    except UnicodeDecodeError:
        raise PlainError("the message is not UTF-8") from None
    if len(fields) != _FIELDS:
        raise PlainError(f"the message has {len(fields)} fields between NUL characters, not 3")
    message = PlainMessage(*fields)
    if not message.username:
        raise PlainError("the user name is empty")
    if not message.password:
        raise PlainError("the password is empty")
    if message.authorization_id not in ("", message.username):
        raise PlainError("the authorization id is not the user name")
    return message


def verify_plain(message: PlainMessage, passwords: Mapping[str, str]) -> bool:
    """True when the user's password is the one in `passwords`.

    An unknown user costs the same time as a wrong password.
    """
    known = passwords.get(message.username)
    expected = (known or "").encode()
    is_equal = hmac.compare_digest(expected, message.password.encode())
    return is_equal and bool(known)


class PlainExchange:
    """The client's side (`headwater.ports.credentials.SaslExchange`)."""

    mechanism = PLAIN

    def __init__(self, username: str, password: str) -> None:
        """Raises UsageError for a name or password that the message cannot hold."""
        for what, text in (("user name", username), ("password", password)):
            if not text or "\0" in text:
                raise UsageError(
                    f"the {what} of PLAIN is empty or has a NUL character: give another"
                )
        self.is_complete = False
        self._token = f"\0{username}\0{password}".encode()

    def step(self, challenge: bytes) -> bytes:
        """The message; there is no second one."""
        self.is_complete = True
        return self._token
