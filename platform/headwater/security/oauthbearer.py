"""OAUTHBEARER's messages (RFC 7628, KIP-255): what clients send, and what brokers read. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from headwater.errors import HeadwaterError, UsageError

OAUTHBEARER = "OAUTHBEARER"
TOKEN_BYTES_MAX = 64 * 1024
SEPARATOR = "\x01"
END_OF_FAILURE = b"\x01"
"""What a client answers to the broker's error, before the broker closes the connection."""
INVALID_TOKEN = b'{"status":"invalid_token"}'
"""The broker's error, whatever is wrong with the token."""
_TOKEN = r"[A-Za-z0-9\-._~+/]+=*"
_MESSAGE = re.compile(
    rf"n,(?:a=(?P<authzid>[^,\x01]*))?,\x01"
    rf"(?P<before>(?:(?!auth=)[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*)"
    rf"auth=[Bb][Ee][Aa][Rr][Ee][Rr] +(?P<token>{_TOKEN})\x01"
    rf"(?P<after>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*)\x01"
)


class OAuthBearerError(HeadwaterError):
    """A message is not one of OAUTHBEARER. The text has no token in it."""


@dataclass(frozen=True, slots=True)
class OAuthBearerMessage:
    """A client's first message."""

    token: str = field(repr=False)
    authorization_id: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)
    """SASL extensions (KIP-342); Headwater uses none of them."""


def parse_message(data: bytes) -> OAuthBearerMessage:
    """A client's first message. Raises OAuthBearerError."""
    if len(data) > TOKEN_BYTES_MAX:
        raise OAuthBearerError(f"the message has {len(data)} bytes, more than {TOKEN_BYTES_MAX}")
    try:
        found = _MESSAGE.fullmatch(data.decode())
    except UnicodeDecodeError:
        found = None
    if found is None:
        raise OAuthBearerError("the message is not one of RFC 7628")
    pairs = [
        pair.partition("=")[::2]
        for pair in (found["before"] + found["after"]).split(SEPARATOR)
        if pair
    ]
    extensions = dict(pairs)
    if len(extensions) != len(pairs) or "auth" in extensions:
        raise OAuthBearerError("the message repeats a key")
    authzid = (found["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
    return OAuthBearerMessage(found["token"], authzid, extensions)


class OAuthBearerExchange:
    """The client's side (`headwater.ports.credentials.SaslExchange`)."""

    mechanism = OAUTHBEARER

    def __init__(self, token: Callable[[], str]) -> None:
        """`token` gives the token for a new connection."""
        self.is_complete = False
        self._token = token
        self._is_sent = False

    def step(self, challenge: bytes) -> bytes | None:
        """The message with the token; then the end, or the acknowledgement of the broker's error.

        Raises UsageError for a token that the message cannot hold.
        """
        if not self._is_sent:
            self._is_sent = True
            token = self._token().strip()
            if re.fullmatch(_TOKEN, token) is None:
                raise UsageError("the OAuth token is empty or has characters that no token has")
            return f"n,,{SEPARATOR}auth=Bearer {token}{SEPARATOR}{SEPARATOR}".encode()
        self.is_complete = True
        return END_OF_FAILURE if challenge else None
