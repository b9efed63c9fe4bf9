"""Shared by the requests about delegation tokens (k38 to k41)."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from headwater.errors import ErrorCode, KafkaError
from headwater.security.protocol import SecurityProtocol
from headwater.wire.apis.k39_renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from headwater.wire.apis.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from headwater_broker.api.admin.forwarding import FORWARD_TIMEOUT_MIN_MS, forward
from headwater_broker.api.context import RequestContext
from headwater_broker.security.delegation_tokens import principal_text

KNOWN_WITHIN_S = 1.0
"""How long a reply waits until this broker knows the new state of the token itself."""
NO_TIME = -1
ExpiryReply = TypeVar("ExpiryReply", RenewDelegationTokenResponse, ExpireDelegationTokenResponse)


def requester_of(ctx: RequestContext) -> str:
    """The principal of the session, as `User:alice`."""
    return principal_text(ctx.principal.kind, ctx.principal.name)


def require_own_credentials(ctx: RequestContext) -> None:
    """Raises KafkaError(DELEGATION_TOKEN_REQUEST_NOT_ALLOWED) for sessions without a secret of
    their own: PLAINTEXT, SSL without a client certificate, and those that a token opened."""
    session = ctx.session
    is_one_way = session.security_protocol is SecurityProtocol.SSL and not session.is_authenticated
    is_open = session.security_protocol is SecurityProtocol.PLAINTEXT
    if session.is_token or is_open or is_one_way:
        text = "delegation tokens need a session with credentials of its own"
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, text)


async def change_expiry(
    ctx: RequestContext,
    request: RenewDelegationTokenRequest | ExpireDelegationTokenRequest,
    reply_type: type[ExpiryReply],
) -> ExpiryReply:
    """Have the controller renew or end a token."""
    try:
        require_own_credentials(ctx)
        return await forward(ctx, request, reply_type, FORWARD_TIMEOUT_MIN_MS)
    except KafkaError as e:
        return reply_type(error_code=e.code, expiry_timestamp_ms=NO_TIME)


async def await_token(ctx: RequestContext, token_id: str) -> None:
    """Wait until this broker knows the token, so that the client can log in here with it."""
    table = ctx.broker.tokens
    known = asyncio.Event()

    def check() -> None:
        if token_id in table:
            known.set()

    table.on_change.append(check)
    check()
    try:
        await asyncio.wait_for(known.wait(), KNOWN_WITHIN_S)
    except TimeoutError:
        return  # the store is slow: the token exists all the same
    finally:
        table.on_change.remove(check)
