"""Validates the JSON Web Tokens of OAUTHBEARER (RFC 7519, KIP-768): the only user of joserfc.

A token is signed by a key of the configured set, with an asymmetric algorithm that fits the key;
it names the expected issuer and audience, and is within its lifetime. Nothing in a token chooses
where keys come from (`jku`, `x5u`, `jwk`) or what is checked (`alg` none, `crit`, encryption).
"""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from joserfc import jwk, jwt
from joserfc.errors import JoseError

from headwater.errors import HeadwaterError

ALGORITHMS = tuple(f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512))
RSA_BITS_MIN = 2048
HEADERS = frozenset(("alg", "kid", "typ", "x5t", "x5t#S256"))
"""Header parameters that a token may have. None but the first two has an effect."""
TYPES = ("JWT", "AT+JWT")
NAME_CHARS_MAX = 255


class TokenError(HeadwaterError):
    """A token is refused. The text is for the broker's log, and has no token in it."""


class UnknownKeyError(TokenError):
    """The token's key is not in the set: the set may be older than the key."""


class VerificationKeys:
    """The public keys of an issuer."""

    def __init__(self, data: bytes) -> None:
        """`data`: a JSON Web Key Set (RFC 7517). Raises TokenError without a usable key.

        Symmetric keys, keys for encryption and short RSA keys are left out.
        """
        self._keys: dict[str, Any] = {}
        self._nameless: list[Any] = []
        try:
            rows = json.loads(data)["keys"]
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            raise TokenError("not a JSON Web Key Set") from error
        for row in rows if isinstance(rows, list) else ():
            key = _usable_key(row)
            if key is None:
                continue
            if isinstance(row.get("kid"), str):
                self._keys[row["kid"]] = key
            else:
                self._nameless.append(key)
        if not self._keys and not self._nameless:
            raise TokenError("the key set has no RSA or EC key for signatures")

    def __len__(self) -> int:
        return len(self._keys) + len(self._nameless)

    def key(self, key_id: str | None) -> Any:
        """The key with this id; without an id the only key. Raises UnknownKeyError."""
        if key_id is not None and key_id in self._keys:
            return self._keys[key_id]
        every = [*self._keys.values(), *self._nameless]
        if key_id is None and len(every) == 1:
            return every[0]
        raise UnknownKeyError("the token names no key of the set")


def _usable_key(row: object) -> Any:
    if not isinstance(row, dict) or row.get("kty") not in ("RSA", "EC"):
        return None
    public = {name: value for name, value in row.items() if name not in ("d", "p", "q", "key_ops")}
    try:
        if row.get("use", "sig") != "sig" or "verify" not in row.get("key_ops", ["verify"]):
            return None
        key = jwk.import_key(public)
        if row["kty"] == "RSA" and getattr(key.raw_value, "key_size", 0) < RSA_BITS_MIN:
            return None
    except (JoseError, ValueError, TypeError, AttributeError, KeyError):
        return None
    return key


@dataclass(frozen=True, slots=True)
class ValidToken:
    """The claims of a valid token."""

    subject: str
    """Name of the principal."""
    expiry_s: float
    """Seconds since 1970."""
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JwtRules:
    """The conditions of a token (`sasl.oauthbearer.*`)."""

    issuer: str
    audiences: Sequence[str]
    """The token names one of them."""
    skew_s: int = 30
    subject_claim: str = "sub"
    scope_claim: str = "scope"

    def validate(self, token: str, keys: VerificationKeys, now_s: float) -> ValidToken:
        """The claims of the token. Raises TokenError."""
        header = _header(token)
        key = keys.key(header.get("kid"))
        try:
            claims = jwt.decode(token, key, algorithms=[header["alg"]]).claims
        except (JoseError, ValueError, TypeError) as error:
            raise TokenError(f"the signature is not valid: {type(error).__name__}") from None
        if claims.get("iss") != self.issuer:
            raise TokenError("the issuer is another one than sasl.oauthbearer.expected.issuer")
        if not self._is_for_us(claims.get("aud")):
            raise TokenError("the audience is none of sasl.oauthbearer.expected.audience")
        expiry_s = self._lifetime(claims, now_s)
        subject = claims.get(self.subject_claim)
        if not isinstance(subject, str) or not subject or len(subject) > NAME_CHARS_MAX:
            raise TokenError(f"claim {self.subject_claim} is not a name")
        if not subject.isprintable():
            raise TokenError(f"claim {self.subject_claim} has characters that cannot be shown")
        return ValidToken(subject, expiry_s, _scopes(claims.get(self.scope_claim)))

    def _is_for_us(self, audience: object) -> bool:
        named = [audience] if isinstance(audience, str) else audience
        return isinstance(named, list) and any(name in named for name in self.audiences)

    def _lifetime(self, claims: dict[str, Any], now_s: float) -> float:
        """The end of the token's lifetime. Raises TokenError outside of it."""
        expiry_s = _time(claims, "exp")
        if expiry_s is None:
            raise TokenError("claim exp is missing: the token would never expire")
        if expiry_s + self.skew_s <= now_s:
            raise TokenError("the token has expired")
        for name in ("nbf", "iat"):
            begin_s = _time(claims, name)
            if begin_s is not None and begin_s - self.skew_s > now_s:
                raise TokenError(f"claim {name}: the token is not valid yet")
        return expiry_s


def _header(token: str) -> dict[str, Any]:
    """The token's header, whose every parameter is known and harmless. Raises TokenError."""
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        raise TokenError("not a signed token: it needs three parts")
    try:
        header = json.loads(base64.urlsafe_b64decode(parts[0] + "=" * (-len(parts[0]) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        raise TokenError("the header is not JSON") from None
    if not isinstance(header, dict) or set(header) - HEADERS:
        raise TokenError("the header has parameters that are not allowed")
    if header.get("alg") not in ALGORITHMS:
        raise TokenError("the algorithm is not one of " + ", ".join(ALGORITHMS))
    if str(header.get("typ", "JWT")).upper().removeprefix("APPLICATION/") not in TYPES:
        raise TokenError("the type is not JWT")
    if not isinstance(header.get("kid", ""), str):
        raise TokenError("the key id is no text")
    return header


def _time(claims: dict[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TokenError(f"claim {name} is not a time")
    return float(value)


def _scopes(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return tuple(value.split())
    return tuple(map(str, value)) if isinstance(value, list) else ()
