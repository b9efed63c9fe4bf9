"""SCRAM's keys (RFC 5802, section 3), and Kafka's text form of a stored credential."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from dataclasses import dataclass, field
from enum import Enum

from headwater.entropy import Entropy
from headwater.errors import UsageError

ITERATIONS_MIN = 4096
ITERATIONS_MAX = 16_384
"""Kafka's limits for credentials."""
ITERATIONS_DEFAULT = 4096
"""kafka-configs.sh takes as many when none are given."""
_SALT_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


class ScramMechanism(Enum):
    """The two mechanisms by their registered names (Kafka's `ScramMechanism`)."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"

    @property
    def hash(self) -> str:
        """Name of the hash function."""
        return "sha256" if self is ScramMechanism.SCRAM_SHA_256 else "sha512"

    @property
    def key_bytes(self) -> int:
        """Size of a key."""
        return 32 if self is ScramMechanism.SCRAM_SHA_256 else 64

    @property
    def code(self) -> int:
        """Its number in requests (KIP-554)."""
        return 1 if self is ScramMechanism.SCRAM_SHA_256 else 2


def scram_mechanism(text: str) -> ScramMechanism:
    """The mechanism by its registered name. Raises UsageError."""
    try:
        return ScramMechanism(text)
    except ValueError:
        names = ", ".join(m.value for m in ScramMechanism)
        raise UsageError(f"{text!r} is no mechanism of SCRAM: use one of {names}") from None


def mechanism_of_code(code: int) -> ScramMechanism | None:
    """The mechanism by its number in requests; None for an unknown number."""
    return next((m for m in ScramMechanism if m.code == code), None)


@dataclass(frozen=True, slots=True)
class ScramCredential:
    """What a broker stores of a password: enough to check it, not to log in with it."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """RFC 5802's SaltedPassword. As in Kafka the password is its UTF-8, without SASLprep."""
    return hashlib.pbkdf2_hmac(mechanism.hash, password.encode(), salt, iterations)


def exclusive_or(left: bytes, right: bytes) -> bytes:
    """RFC 5802's XOR of two strings of one length. Raises ValueError for others."""
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def keyed(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    """The mechanism's HMAC."""
    return hmac.digest(key, message, mechanism.hash)


def hashed(mechanism: ScramMechanism, data: bytes) -> bytes:
    """The mechanism's hash."""
    return hashlib.new(mechanism.hash, data).digest()


def credential_of(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """The credential to store, out of the salted password."""
    stored_key = hashed(mechanism, keyed(mechanism, salted, b"Client Key"))
    return ScramCredential(salt, stored_key, keyed(mechanism, salted, b"Server Key"), iterations)


def credential_of_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int = ITERATIONS_DEFAULT
) -> ScramCredential:
    """The credential to store, out of the password: `iterations` HMACs."""
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


def salt_of(random_bytes: bytes) -> bytes:
    """A salt in the form of Kafka's tools: 130 bits as text of base 36."""
    number, digits = int.from_bytes(random_bytes, "big") >> (8 * len(random_bytes) - _SALT_BITS), ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits.encode()


def new_salt(entropy: Entropy) -> bytes:
    """A random salt."""
    return salt_of(entropy.randbytes(17))


def format_credential(credential: ScramCredential) -> str:
    """Kafka's text of a stored credential."""

    def text(data: bytes) -> str:
        return base64.b64encode(data).decode()

    return (
        f"salt={text(credential.salt)},stored_key={text(credential.stored_key)},"
        f"server_key={text(credential.server_key)},iterations={credential.iterations}"
    )


def parse_credential(text: str) -> ScramCredential:
    """A credential in Kafka's text. Raises ValueError, whose message has none of it."""
    fields: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            fields[name] = value
    try:
        salt, stored_key, server_key = (
            base64.b64decode(fields[name], validate=True)
            for name in ("salt", "stored_key", "server_key")
        )
        return ScramCredential(salt, stored_key, server_key, int(fields["iterations"]))
    except (KeyError, binascii.Error, ValueError):
        raise ValueError("a stored SCRAM credential is not in Kafka's form") from None
