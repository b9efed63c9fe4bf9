"""The login of a request, passed through to the brokers as the user's SASL. Pure.

The gateway checks nothing itself: the brokers do, on a connection of that user.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from headwater.security.secret import is_reference
from headwater_gateway.app.errors import unauthorized

ANONYMOUS = "ANONYMOUS"
AUTHORIZATION_CHARS_MAX = 16 * 1024
PASSWORD_MECHANISMS = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
"""The mechanisms of users with passwords, the default first."""
_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_PLAIN_TEXT = re.compile(r'[^"\\\x00-\x1f\x7f]+')


def password_mechanism(properties: Mapping[str, str]) -> str:
    """The mechanism of users with passwords: that of the process's own login, if it is one."""
    own = properties.get("sasl.mechanism", "").upper()
    return own if own in PASSWORD_MECHANISMS else PASSWORD_MECHANISMS[0]


class LoginKind(Enum):
    """How a user is known."""

    ANONYMOUS = "anonymous"
    """The brokers have no login."""
    PASSWORD = "password"
    TOKEN = "token"
    """An OAuth token."""


@dataclass(frozen=True, slots=True)
class Login:
    """One user, and what proves it to the brokers."""

    name: str
    kind: LoginKind = LoginKind.ANONYMOUS
    secret: str = field(default="", repr=False)

    @classmethod
    def anonymous(cls) -> Login:
        """Nobody in particular: of a cluster without logins."""
        return cls(ANONYMOUS)

    @property
    def principal(self) -> str:
        """As Kafka writes it, for audit lines."""
        return f"User:{self.name}"

    def digest(self, salt: bytes) -> bytes:
        """Tells logins apart without keeping them."""
        text = f"{self.kind.value}\0{self.name}\0{self.secret}"
        return hashlib.blake2b(text.encode(errors="surrogatepass"), key=salt).digest()

    def authorization(self) -> str:
        """The header that says so to another HTTP server, such as a schema registry."""
        if self.kind is LoginKind.PASSWORD:
            return "Basic " + base64.b64encode(f"{self.name}:{self.secret}".encode()).decode()
        return f"Bearer {self.secret}" if self.kind is LoginKind.TOKEN else ""

    def properties(self, mechanism: str) -> Mapping[str, str]:
        """A client's `sasl.*` properties; `mechanism` is for passwords."""
        if self.kind is LoginKind.ANONYMOUS:
            return {}
        if self.kind is LoginKind.TOKEN:
            module = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
            jaas = f'{module} required token="{self.secret}";'
            return {"sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": jaas}
        return {
            "sasl.mechanism": mechanism,
            "sasl.username": self.name,
            "sasl.password": self.secret,
        }


def login_of(authorization: str) -> Login:
    """The login of an Authorization header. Raises GatewayError (401)."""
    scheme, _, rest = authorization.partition(" ")
    if len(authorization) > AUTHORIZATION_CHARS_MAX:
        raise unauthorized("the Authorization header is too long")
    if scheme.lower() == "basic":
        return _basic(rest.strip())
    if scheme.lower() == "bearer":
        token = rest.strip()
        if _TOKEN.fullmatch(token) is None:
            raise unauthorized("the token has characters that no token has")
        return Login(_subject(token), LoginKind.TOKEN, token)
    raise unauthorized()


def password_login(user: str, password: str) -> Login:
    """A user with a password. Raises GatewayError (401)."""
    # A password such as file:/etc/passwd is a reference to the SDK, which would read the file.
    for text in (user, password):
        if not text or is_reference(text):
            raise unauthorized()
    return Login(user, LoginKind.PASSWORD, password)


def _basic(encoded: str) -> Login:
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise unauthorized() from error
    user, mark, password = text.partition(":")
    if not mark:
        raise unauthorized()
    return password_login(user, password)


def _subject(token: str) -> str:
    """The subject that a JWT names, for messages: the brokers check the token."""
    payload = token.partition(".")[2].partition(".")[0]
    try:
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        return "token"
    found = claims.get("sub") if isinstance(claims, dict) else None
    return found if isinstance(found, str) and _PLAIN_TEXT.fullmatch(found) else "token"
