"""SaslAuthenticate: tokens of a SASL mechanism (KIP-152), and the session lifetime (KIP-368)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k36_sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(SaslAuthenticateRequest, SaslAuthenticateResponse)
async def sasl_authenticate(
    ctx: RequestContext, request: SaslAuthenticateRequest
) -> SaslAuthenticateResponse:
    """The broker's next token; the session's lifetime once the client is authenticated."""
    authenticator = ctx.session.authenticator
    if authenticator is None:
        text = f"listener {ctx.listener} has no SASL"
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, text)
    answer = await authenticator.authenticate(bytes(request.auth_bytes))
    return SaslAuthenticateResponse(
        error_code=answer.error,
        error_message=answer.message,
        auth_bytes=answer.token,
        session_lifetime_ms=answer.lifetime_ms,
    )
