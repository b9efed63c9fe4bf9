"""ExpireDelegationToken: an earlier end of a token, for its owner and its renewers (KIP-48)."""

from __future__ import annotations

from headwater.wire.apis.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.delegation_token_requests import change_expiry
from headwater_broker.api.registry import handles


@handles(ExpireDelegationTokenRequest, ExpireDelegationTokenResponse)
async def expire_delegation_token(
    ctx: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """The controller checks that the principal is the owner or a renewer."""
    return await change_expiry(ctx, request, ExpireDelegationTokenResponse)
