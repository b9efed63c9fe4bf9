"""CreateDelegationToken: a token for the requester, or for another principal (KIP-48, KIP-373)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from headwater_broker.api.admin.forwarding import FORWARD_TIMEOUT_MIN_MS, forward
from headwater_broker.api.context import RequestContext
from headwater_broker.api.delegation_token_requests import (
    NO_TIME,
    await_token,
    requester_of,
    require_own_credentials,
)
from headwater_broker.api.registry import handles
from headwater_broker.security.delegation_tokens import owner_of, principal_of


@handles(CreateDelegationTokenRequest, CreateDelegationTokenResponse)
async def create_delegation_token(
    ctx: RequestContext, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    """For another owner it needs CREATE_TOKENS on that user."""
    requester = requester_of(ctx)
    owner = owner_of(request.owner_principal_type, request.owner_principal_name, requester)
    try:
        require_own_credentials(ctx)
        if owner != requester and not ctx.allowed(
            Operation.CREATE_TOKENS, ResourceType.USER, owner
        ):
            text = f"no CREATE_TOKENS on user {owner}"
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, text)
        reply = await forward(ctx, request, CreateDelegationTokenResponse, FORWARD_TIMEOUT_MIN_MS)
    except KafkaError as e:
        return _refused(e.code, owner, requester)
    if reply.error_code == ErrorCode.NONE:
        await await_token(ctx, reply.token_id)
    return reply


def _refused(code: ErrorCode, owner: str, requester: str) -> CreateDelegationTokenResponse:
    of, by = principal_of(owner), principal_of(requester)
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=of.kind,
        principal_name=of.name,
        token_requester_principal_type=by.kind,
        token_requester_principal_name=by.name,
        issue_timestamp_ms=NO_TIME,
        expiry_timestamp_ms=NO_TIME,
        max_timestamp_ms=NO_TIME,
        token_id="",
        hmac=b"",
    )
