"""DescribeDelegationToken: the tokens that the principal may see (KIP-48)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k41_describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.delegation_token_requests import requester_of, require_own_credentials
from headwater_broker.api.registry import handles
from headwater_broker.security.delegation_tokens import (
    DelegationToken,
    principal_of,
    principal_text,
)


@handles(DescribeDelegationTokenRequest, DescribeDelegationTokenResponse)
def describe_delegation_token(
    ctx: RequestContext, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    """Own tokens, and those it may renew; others with DESCRIBE on the token or DESCRIBE_TOKENS on
    their owner. The rest is left out."""
    tokens = ctx.broker.tokens
    try:
        require_own_credentials(ctx)
        if not tokens.secrets.is_enabled:
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)
    except KafkaError as e:
        return DescribeDelegationTokenResponse(error_code=e.code, tokens=())
    owners = None
    if request.owners is not None:
        owners = {principal_text(o.principal_type, o.principal_name) for o in request.owners}
    rows = []
    for token in sorted(tokens.tokens(), key=lambda token: token.token_id):
        secret = tokens.secrets.hmac_of(token)
        is_asked = owners is None or any(token.belongs_to(owner) for owner in owners)
        if secret is not None and is_asked and _may_see(ctx, token):
            rows.append(_row(token, secret))
    return DescribeDelegationTokenResponse(error_code=ErrorCode.NONE, tokens=tuple(rows))


def _may_see(ctx: RequestContext, token: DelegationToken) -> bool:
    return (
        token.belongs_to(requester_of(ctx))
        or ctx.allowed(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or ctx.allowed(Operation.DESCRIBE_TOKENS, ResourceType.USER, token.owner)
    )


def _row(token: DelegationToken, secret: bytes) -> DescribedDelegationToken:
    owner, requester = principal_of(token.owner), principal_of(token.requester)
    return DescribedDelegationToken(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp=token.issue_ms,
        expiry_timestamp=token.expiry_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=secret,
        renewers=tuple(
            DescribedDelegationTokenRenewer(principal_type=r.kind, principal_name=r.name)
            for r in map(principal_of, token.renewers)
        ),
    )
