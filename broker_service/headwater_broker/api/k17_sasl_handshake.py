"""SaslHandshake: the client chooses a SASL mechanism (KIP-43).

Version 1 is followed by SaslAuthenticate requests (KIP-152), version 0 by bare tokens.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.api.replies import CloseConnectionError
from headwater_broker.security.authentication_gate import Authenticator, TokenExchange


@handles(SaslHandshakeRequest, SaslHandshakeResponse)
def sasl_handshake(ctx: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """The enabled mechanisms; an error unless the client's is one of them."""
    authenticator, gate = ctx.session.authenticator, ctx.session.gate
    if authenticator is None or gate is None:
        text = f"listener {ctx.listener} has no SASL"
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, text)
    answer = authenticator.handshake(request.mechanism, ctx.api_version)
    if answer.error is ErrorCode.NONE and ctx.api_version == 0:
        gate.read_tokens(_bare_tokens(authenticator))
    return SaslHandshakeResponse(error_code=answer.error, mechanisms=answer.mechanisms)


def _bare_tokens(authenticator: Authenticator) -> TokenExchange:
    """Such a client reads no error: the connection is closed."""

    async def exchange(token: bytes) -> bytes:
        answer = await authenticator.authenticate(token)
        if answer.error is not ErrorCode.NONE:
            raise CloseConnectionError(f"{answer.error.name}: {answer.message}")
        return answer.token

    return exchange
