"""Admin calls about delegation tokens (KIP-48, KIP-373): their requests, on the loop.

token = admin.create_delegation_token(renewers=["User:spark"])
ScramExchange("SCRAM-SHA-512", token.token_id, token.password, is_token=True)
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from headwater.client.cluster import Cluster
from headwater.client.errors import kafka_error
from headwater.errors import UsageError
from headwater.wire.apis.k38_create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from headwater.wire.apis.k39_renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from headwater.wire.apis.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from headwater.wire.apis.k41_describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

T = TypeVar("T")
BROKERS_LIMIT = -1
"""As a period: as long as the broker allows."""
AT_ONCE = -1
"""As a period of `expire`: the token ends now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationToken:
    """A delegation token. Principals as `User:alice`; times in ms since 1970."""

    token_id: str
    owner: str
    requester: str
    renewers: tuple[str, ...]
    issue_timestamp: int
    expiry_timestamp: int
    max_timestamp: int
    hmac: bytes = field(repr=False)
    """The secret."""

    @property
    def password(self) -> str:
        """The password of a SCRAM login with this token; the user name is its id."""
        return base64.b64encode(self.hmac).decode()


class TokenCalls:
    """Each method is one admin call. Only reads are repeated: a token could be made twice."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def create(
        self, owner: str | None, renewers: Iterable[str], max_lifetime_ms: int
    ) -> DelegationToken:
        """CreateDelegationToken."""
        of = None if owner is None else _principal(owner)
        pairs = [_principal(renewer) for renewer in renewers]
        request = CreateDelegationTokenRequest(
            owner_principal_type=of[0] if of else None,
            owner_principal_name=of[1] if of else None,
            renewers=tuple(CreatableRenewers(principal_type=t, principal_name=n) for t, n in pairs),
            max_lifetime_ms=max_lifetime_ms,
        )
        node = await self._cluster.any_node()
        reply = await self._cluster.call(node, request, CreateDelegationTokenResponse)
        if reply.error_code:
            raise kafka_error(reply.error_code, "create a delegation token")
        made = f"{reply.principal_type}:{reply.principal_name}"
        by = f"{reply.token_requester_principal_type}:{reply.token_requester_principal_name}"
        return DelegationToken(
            token_id=reply.token_id,
            owner=made,
            requester=by if by != ":" else made,  # versions before 3 do not tell
            renewers=tuple(f"{kind}:{name}" for kind, name in pairs),
            issue_timestamp=reply.issue_timestamp_ms,
            expiry_timestamp=reply.expiry_timestamp_ms,
            max_timestamp=reply.max_timestamp_ms,
            hmac=bytes(reply.hmac),
        )

    async def renew(self, hmac: bytes, period_ms: int) -> int:
        """RenewDelegationToken; the new expiry."""
        request = RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms)

        async def attempt() -> int:
            node = await self._cluster.any_node()
            reply = await self._cluster.call(node, request, RenewDelegationTokenResponse)
            if reply.error_code:
                raise kafka_error(reply.error_code, "renew a delegation token")
            return reply.expiry_timestamp_ms

        return await self._cluster.retrying("renew a delegation token", attempt)

    async def expire(self, hmac: bytes, period_ms: int) -> int:
        """ExpireDelegationToken; the new expiry."""
        request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)

        async def attempt() -> int:
            node = await self._cluster.any_node()
            reply = await self._cluster.call(node, request, ExpireDelegationTokenResponse)
            if reply.error_code:
                raise kafka_error(reply.error_code, "expire a delegation token")
            return reply.expiry_timestamp_ms

        return await self._cluster.retrying("expire a delegation token", attempt)

    async def describe(self, owners: Iterable[str] | None) -> list[DelegationToken]:
        """DescribeDelegationToken for these owners and renewers, or for all."""
        rows = None
        if owners is not None:
            pairs = [_principal(owner) for owner in owners]
            rows = tuple(
                DescribeDelegationTokenOwner(principal_type=t, principal_name=n) for t, n in pairs
            )
        request = DescribeDelegationTokenRequest(owners=rows)

        async def attempt() -> list[DelegationToken]:
            node = await self._cluster.any_node()
            reply = await self._cluster.call(node, request, DescribeDelegationTokenResponse)
            if reply.error_code:
                raise kafka_error(reply.error_code, "describe delegation tokens")
            return _described(reply)

        return await self._cluster.retrying("describe delegation tokens", attempt)


def _described(reply: DescribeDelegationTokenResponse) -> list[DelegationToken]:
    found = []
    for row in reply.tokens:
        owner = f"{row.principal_type}:{row.principal_name}"
        by = f"{row.token_requester_principal_type}:{row.token_requester_principal_name}"
        found.append(
            DelegationToken(
                token_id=row.token_id,
                owner=owner,
                requester=by if by != ":" else owner,
                renewers=tuple(f"{r.principal_type}:{r.principal_name}" for r in row.renewers),
                issue_timestamp=row.issue_timestamp,
                expiry_timestamp=row.expiry_timestamp,
                max_timestamp=row.max_timestamp,
                hmac=bytes(row.hmac),
            )
        )
    return found


def _principal(text: str) -> tuple[str, str]:
    """(type, name) of `User:alice`. Raises UsageError."""
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise UsageError(f"principal {text!r}: write it as User:name")
    return kind, name


class TokenVerbs:
    """The methods of `Admin` about delegation tokens."""

    _tokens: TokenCalls

    async def create_delegation_token(
        self,
        *,
        owner: str | None = None,
        renewers: Iterable[str] = (),
        max_lifetime_ms: int = BROKERS_LIMIT,
    ) -> DelegationToken:
        """A new token of the user that this client is, or of `owner` with the right CREATE_TOKENS.

        Raises KafkaError: DELEGATION_TOKEN_AUTH_DISABLED where the brokers have no secret key for
        tokens, DELEGATION_TOKEN_REQUEST_NOT_ALLOWED without credentials or with a token,
        DELEGATION_TOKEN_AUTHORIZATION_FAILED.
        """
        return await self._tokens.create(owner, renewers, max_lifetime_ms)

    async def renew_delegation_token(self, hmac: bytes, *, period_ms: int = BROKERS_LIMIT) -> int:
        """Make a token valid for `period_ms` from now on; its new expiry, in ms since 1970.

        Raises KafkaError: DELEGATION_TOKEN_NOT_FOUND, DELEGATION_TOKEN_EXPIRED,
        DELEGATION_TOKEN_OWNER_MISMATCH for who neither owns nor may renew it.
        """
        return await self._tokens.renew(hmac, period_ms)

    async def expire_delegation_token(self, hmac: bytes, *, period_ms: int = AT_ONCE) -> int:
        """End a token, now or after `period_ms`; its new expiry. Raises as for renewals."""
        return await self._tokens.expire(hmac, period_ms)

    async def describe_delegation_tokens(
        self, owners: Iterable[str] | None = None
    ) -> list[DelegationToken]:
        """The tokens that this user may see: those of `owners`, or all."""
        return await self._tokens.describe(owners)
