"""RenewDelegationToken: a later expiry of a token, for its owner and its renewers (KIP-48)."""

from __future__ import annotations

from headwater.wire.apis.k39_renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.delegation_token_requests import change_expiry
from headwater_broker.api.registry import handles


@handles(RenewDelegationTokenRequest, RenewDelegationTokenResponse)
async def renew_delegation_token(
    ctx: RequestContext, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    """The controller checks that the principal is the owner or a renewer."""
    return await change_expiry(ctx, request, RenewDelegationTokenResponse)
