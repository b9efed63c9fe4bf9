"""ExpireDelegationToken: an earlier end of a token, for its owner and its renewers (KIP-48)."""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.wire.apis.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from headwater_broker.api.admin.forwarding import FORWARD_TIMEOUT_MIN_MS, forward
from headwater_broker.api.context import RequestContext
from headwater_broker.api.delegation_token_requests import (
    NO_TIME,
    audit,
    id_of,
    require_own_credentials,
)
from headwater_broker.api.registry import handles


@handles(ExpireDelegationTokenRequest, ExpireDelegationTokenResponse)
async def expire_delegation_token(
    ctx: RequestContext, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    """The controller checks that the principal is the owner or a renewer."""
    token_id = id_of(ctx, bytes(request.hmac))
    try:
        require_own_credentials(ctx)
        reply = await forward(ctx, request, ExpireDelegationTokenResponse, FORWARD_TIMEOUT_MIN_MS)
    except KafkaError as e:
        return ExpireDelegationTokenResponse(error_code=e.code, expiry_timestamp_ms=NO_TIME)
    if not reply.error_code:
        audit(ctx, f"ended delegation token {token_id}")
    return reply
