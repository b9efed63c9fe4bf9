"""SCRAM's four messages (RFC 5802, section 7; Kafka's `ScramMessages`)."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass

from headwater.entropy import Entropy
from headwater.errors import HeadwaterError

MESSAGE_BYTES_MAX = 16 * 1024
NONCE_BYTES = 24
_NAME = r"(?:[^=,\x00]|=2C|=3D)+"
_VALUE = r"[^,\x00]+"
_NONCE = r"[\x21-\x2B\x2D-\x7E]+"
_BASE64 = r"[A-Za-z0-9/+]*={0,2}"
_EXTENSIONS = rf"(?P<extensions>(?:,[A-Za-z]+={_VALUE})*)"
_CLIENT_FIRST = re.compile(
    rf"(?P<header>[ny],(?:a=(?P<authzid>{_NAME}))?,)"
    rf"(?P<bare>n=(?P<name>{_NAME}),r=(?P<nonce>{_NONCE}){_EXTENSIONS})"
)
_SERVER_FIRST = re.compile(
    rf"r=(?P<nonce>{_NONCE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[1-9][0-9]{{0,8}}){_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<unproved>c=(?P<binding>{_BASE64}),r=(?P<nonce>{_NONCE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_EXTENSIONS}")
TOKEN_EXTENSION = "tokenauth"
"""`tokenauth=true` in the client's first message: the name is a delegation token's id (KIP-48)."""


class ScramError(HeadwaterError):
    """A message that is not SCRAM's, or proves nothing. The text is for logs; it has no secret."""


@dataclass(frozen=True, slots=True)
class ClientFirst:
    """Who wants to log in."""

    header: str
    """The GS2 header: no channel binding, and perhaps an authorization id."""
    authorization_id: str
    username: str
    nonce: str
    is_token: bool
    bare: str
    """The message without its header: part of what both sides sign."""


@dataclass(frozen=True, slots=True)
class ServerFirst:
    """Salt and iterations of the user, and the nonce of both sides."""

    nonce: str
    salt: bytes
    iterations: int


@dataclass(frozen=True, slots=True)
class ClientFinal:
    """The client's proof."""

    binding: bytes
    """The GS2 header again."""
    nonce: str
    unproved: str
    """The message without the proof: part of what both sides sign."""
    proof: bytes


def escape_name(name: str) -> str:
    """A user name as messages hold it."""
    return name.replace("=", "=3D").replace(",", "=2C")


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")


def parse_client_first(token: bytes) -> ClientFirst:
    """Raises ScramError; also where the client asks for channel binding, or has an `m` extension,
    which RFC 5802 wants refused."""
    found = _match(_CLIENT_FIRST, token, "first message of the client")
    extensions = dict(
        part.split("=", 1) for part in found["extensions"].removeprefix(",").split(",") if part
    )
    if "m" in extensions:
        raise ScramError("the client asks for a mandatory extension")
    return ClientFirst(
        found["header"],
        _unescaped(found["authzid"] or ""),
        _unescaped(found["name"]),
        found["nonce"],
        extensions.get(TOKEN_EXTENSION, "").lower() == "true",
        found["bare"],
    )


def parse_server_first(token: bytes) -> ServerFirst:
    """Raises ScramError."""
    found = _match(_SERVER_FIRST, token, "first message of the broker")
    return ServerFirst(found["nonce"], _decoded(found["salt"]), int(found["iterations"]))


def parse_client_final(token: bytes) -> ClientFinal:
    """Raises ScramError."""
    found = _match(_CLIENT_FINAL, token, "final message of the client")
    return ClientFinal(
        _decoded(found["binding"]), found["nonce"], found["unproved"], _decoded(found["proof"])
    )


def parse_server_final(token: bytes) -> bytes:
    """The broker's signature. Raises ScramError, with the broker's word when it refuses."""
    found = _match(_SERVER_FINAL, token, "final message of the broker")
    if found["error"] is not None:
        raise ScramError(f"the broker answers {found['error'][:100]!r}")
    return _decoded(found["signature"])


def new_nonce(entropy: Entropy) -> str:
    """One side's part of an exchange's nonce: it makes every exchange another one."""
    return encoded(entropy.randbytes(NONCE_BYTES))


def encoded(data: bytes) -> str:
    """Base64."""
    return base64.b64encode(data).decode()


def _match(pattern: re.Pattern[str], token: bytes, what: str) -> re.Match[str]:
    if len(token) > MESSAGE_BYTES_MAX:
        raise ScramError(f"the {what} has {len(token)} bytes")
    try:
        found = pattern.fullmatch(token.decode("utf-8"))
    except UnicodeDecodeError:
        raise ScramError(f"the {what} is not UTF-8") from None
    if found is None:
        raise ScramError(f"the {what} is not SCRAM's")
    return found


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ScramError("a value is not base64") from None
