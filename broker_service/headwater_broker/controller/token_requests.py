"""Forwarded requests about delegation tokens: wire request -> event -> wire reply (KIP-48)."""

from __future__ import annotations

from typing import cast

from headwater.clock import Clock
from headwater.errors import ErrorCode
from headwater.wire.apis.k38_create_delegation_token import (
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
from headwater.wire.control import ForwardRequest
from headwater.wire.schema import Message, decode, encode
from headwater_broker.controller.controller_loop import ControllerLoop
from headwater_broker.controller.events import CreateToken, ExpireToken, RenewToken, TokenResult
from headwater_broker.security.delegation_tokens import owner_of, principal_of, principal_text

NO_TIME = -1
_REQUESTS: dict[int, type[Message]] = {
    cls.api_key: cls
    for cls in (
        CreateDelegationTokenRequest,
        RenewDelegationTokenRequest,
        ExpireDelegationTokenRequest,
    )
}
TOKEN_KEYS = frozenset(_REQUESTS)
"""The API keys that `TokenExecutor` runs."""


class TokenExecutor:
    """Runs forwarded requests about tokens on the controller loop, for the principal of each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def execute(self, controller: ControllerLoop, forwarded: ForwardRequest) -> bytes:
        """The encoded reply body. Raises KafkaError(NOT_CONTROLLER)."""
        version = forwarded.forwarded_version
        request = decode(_REQUESTS[forwarded.forwarded_key], version, forwarded.body)
        principal = forwarded.principal
        reply: Message
        if isinstance(request, CreateDelegationTokenRequest):
            reply = await self._create(controller, request, principal)
        elif isinstance(request, RenewDelegationTokenRequest):
            error, expiry_ms = await self._new_expiry(
                controller, RenewToken, principal, bytes(request.hmac), request.renew_period_ms
            )
            reply = RenewDelegationTokenResponse(error_code=error, expiry_timestamp_ms=expiry_ms)
        else:
            end = cast(ExpireDelegationTokenRequest, request)
            error, expiry_ms = await self._new_expiry(
                controller, ExpireToken, principal, bytes(end.hmac), end.expiry_time_period_ms
            )
            reply = ExpireDelegationTokenResponse(error_code=error, expiry_timestamp_ms=expiry_ms)
        return encode(reply, version)

    async def _create(
        self, controller: ControllerLoop, request: CreateDelegationTokenRequest, requester: str
    ) -> CreateDelegationTokenResponse:
        owner = owner_of(request.owner_principal_type, request.owner_principal_name, requester)
        renewers = tuple(
            principal_text(r.principal_type, r.principal_name) for r in request.renewers
        )
        found: TokenResult = await controller.ask(
            lambda token: CreateToken(
                token=token,
                now_ms=self._clock.now_ms(),
                owner=owner,
                requester=requester,
                renewers=renewers,
                max_lifetime_ms=request.max_lifetime_ms,
            )
        )
        return created(found, owner, requester)

    async def _new_expiry(
        self,
        controller: ControllerLoop,
        event: type[RenewToken] | type[ExpireToken],
        principal: str,
        secret: bytes,
        period_ms: int,
    ) -> tuple[ErrorCode, int]:
        """Renew or end a token: the error, and the new expiry in ms or NO_TIME."""
        found: TokenResult = await controller.ask(
            lambda token: event(
                token=token,
                now_ms=self._clock.now_ms(),
                principal=principal,
                hmac=secret,
                period_ms=period_ms,
            )
        )
        is_done = found.error is ErrorCode.NONE and found.token is not None
        return found.error, found.token.expiry_ms if is_done and found.token else NO_TIME


def created(found: TokenResult, owner: str, requester: str) -> CreateDelegationTokenResponse:
    """The reply to CreateDelegationToken."""
    of, by, token = principal_of(owner), principal_of(requester), found.token
    return CreateDelegationTokenResponse(
        error_code=found.error,
        principal_type=of.kind,
        principal_name=of.name,
        token_requester_principal_type=by.kind,
        token_requester_principal_name=by.name,
        issue_timestamp_ms=token.issue_ms if token else NO_TIME,
        expiry_timestamp_ms=token.expiry_ms if token else NO_TIME,
        max_timestamp_ms=token.max_ms if token else NO_TIME,
        token_id=token.token_id if token else "",
        hmac=found.hmac,
    )
