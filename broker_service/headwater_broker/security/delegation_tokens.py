"""Delegation tokens (KIP-48, KIP-373): their rules, their HMACs, and the tokens a broker knows.

A token is an id; its secret is the HMAC-SHA512 of the id under `delegation.token.secret.key`, which
all brokers share. The store holds no secret: a broker computes HMACs when it needs them. Clients
log in by SCRAM with the id as user name and the HMAC in base64 as password.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from headwater.ports.authorizer import Principal

USER_TYPE = "User"
"""The only type of principals that may renew tokens."""
SIGNER_CHARS = 8
"""Length of the text that tells one secret key from another, in hex digits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A token in the store (Kafka's `TokenInformation`). Principals as `User:alice`."""

    token_id: str
    owner: str
    """The principal of a client that logs in with the token."""
    requester: str
    """The principal that asked for the token."""
    renewers: tuple[str, ...]
    issue_ms: int
    expiry_ms: int
    """The token is valid up to this time, unless it is renewed."""
    max_ms: int
    """It cannot be renewed past this time."""
    signer: str = ""
    """Which secret key signs it (`TokenSecrets.signer`); empty: Kafka's brokers wrote it."""

    def is_expired(self, now_ms: int) -> bool:
        """True once the token is of no use: Kafka compares the same way."""
        return self.expiry_ms < now_ms or self.max_ms < now_ms

    def belongs_to(self, principal: str) -> bool:
        """True for the owner and for renewers: they may renew, expire and describe the token."""
        return principal == self.owner or principal in self.renewers


class TokenSecrets:
    """The secret keys of `delegation.token.secret.key` and its predecessors. The first one signs.

    Tokens keep the key that signed them, so that a changed key ends no token (`previous`).
    """

    def __init__(self, secret: str = "", previous: Sequence[str] = ()) -> None:
        keys = [key.encode() for key in (secret, *previous) if key]
        self._keys = {_signer(key): key for key in reversed(keys)} if secret else {}
        self.signer = _signer(keys[0]) if self._keys else ""
        """Name of the key that signs new tokens."""

    def __repr__(self) -> str:
        return f"TokenSecrets({len(self._keys)} keys)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenSecrets) and self._keys == other._keys

    __hash__ = None  # type: ignore[assignment]

    @property
    def is_enabled(self) -> bool:
        """False without a secret key: then there are no tokens."""
        return bool(self._keys)

    def hmac_of(self, token: DelegationToken) -> bytes | None:
        """The secret of a token; None when no broker can verify it any longer."""
        key = self._keys.get(token.signer or self.signer)
        return None if key is None else hmac.digest(key, token.token_id.encode(), hashlib.sha512)


def _signer(key: bytes) -> str:
    return hmac.new(key, b"headwater delegation key", hashlib.sha256).hexdigest()[:SIGNER_CHARS]


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """The credential that a client's login by token is compared with."""

    owner: Principal
    hmac: bytes
    expiry_ms: int

    def __repr__(self) -> str:
        return f"TokenLogin(owner={self.owner!r}, expiry_ms={self.expiry_ms})"


class TokenTable:
    """Tokens by id and by HMAC (Kafka's `DelegationTokenCache`)."""

    def __init__(self, secrets: TokenSecrets) -> None:
        self.secrets = secrets
        self.on_change: list[Callable[[], None]] = []
        """Called after each change of the tokens."""
        self._tokens: dict[str, DelegationToken] = {}
        self._by_hmac: dict[bytes, str] = {}

    def __contains__(self, token_id: str) -> bool:
        return token_id in self._tokens

    def tokens(self) -> list[DelegationToken]:
        """All of them, also expired ones that are not removed yet."""
        return list(self._tokens.values())

    def get(self, token_id: str) -> DelegationToken | None:
        """One token by its id."""
        return self._tokens.get(token_id)

    def with_hmac(self, secret: bytes) -> DelegationToken | None:
        """The token with this HMAC."""
        token_id = self._by_hmac.get(bytes(secret))
        return None if token_id is None else self._tokens.get(token_id)

    def find_token(self, token_id: str) -> TokenLogin | None:
        """The credential that a login with this token must prove; None for an unknown token.

        The caller compares the expiry with its clock.
        """
        token = self._tokens.get(token_id)
        secret = self.secrets.hmac_of(token) if token is not None else None
        if token is None or secret is None:
            return None
        return TokenLogin(principal_of(token.owner), secret, token.expiry_ms)

    def update(self, found: Iterable[DelegationToken], removed: Iterable[str] = ()) -> None:
        """Tokens that are new or renewed, and the ids of those that are gone."""
        for token in found:
            self._tokens[token.token_id] = token
            secret = self.secrets.hmac_of(token)
            if secret is not None:
                self._by_hmac[secret] = token.token_id
        for token_id in removed:
            gone = self._tokens.pop(token_id, None)
            secret = self.secrets.hmac_of(gone) if gone is not None else None
            if secret is not None:
                self._by_hmac.pop(secret, None)
        for notify in list(self.on_change):
            notify()


def principal_text(kind: str, name: str) -> str:
    """Kafka's text of a principal: `User:alice`."""
    return f"{kind}:{name}"


def owner_of(kind: str | None, name: str | None, requester: str) -> str:
    """The owner of a token that is asked for: the requester, unless another is named (KIP-373)."""
    return principal_text(kind or "", name) if name else requester


def principal_of(text: str) -> Principal:
    """The principal of its text: the type ends at the first colon."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)
