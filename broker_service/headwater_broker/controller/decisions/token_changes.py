"""Decisions on delegation tokens: create, renew, expire (KIP-48, KIP-373), and the end of old ones.

The broker that received a request has checked the right to make a token for somebody else.
"""

from __future__ import annotations

from dataclasses import replace

from headwater.entropy import Entropy
from headwater.errors import ErrorCode
from headwater.ids import id_text
from headwater.ports.metadata_store import Create, Delete, Operation, Set
from headwater_broker.controller.decisions.decision_builder import DecisionBuilder
from headwater_broker.controller.events import (
    CreateToken,
    ExpireToken,
    ExpireTokens,
    RenewToken,
    Reply,
    TokenResult,
)
from headwater_broker.controller.state import ControllerState
from headwater_broker.controller.write_batches import MULTI_BYTES_MAX, size_of
from headwater_broker.metadata.token_znodes import CHANGE_PREFIX, encode_token, token_path
from headwater_broker.security.delegation_tokens import USER_TYPE, DelegationToken


def on_create_token(
    state: ControllerState, decision: DecisionBuilder, event: CreateToken, entropy: Entropy
) -> None:
    """A new token, valid for `delegation.token.expiry.time.ms` at a time."""
    config, secrets = state.config, state.tokens.secrets
    if not secrets.is_enabled:
        decision.reply(Reply(event.token, _refused(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED)))
        return
    if any(kind != USER_TYPE for kind, _, _ in (r.partition(":") for r in event.renewers)):
        decision.reply(Reply(event.token, _refused(ErrorCode.INVALID_PRINCIPAL_TYPE)))
        return
    asked_ms = event.max_lifetime_ms if event.max_lifetime_ms > 0 else config.token_lifetime_max_ms
    max_ms = event.now_ms + min(asked_ms, config.token_lifetime_max_ms)
    made = DelegationToken(
        token_id=id_text(entropy.uuid()),
        owner=event.owner,
        requester=event.requester,
        renewers=event.renewers,
        issue_ms=event.now_ms,
        expiry_ms=min(max_ms, event.now_ms + config.token_expiry_time_ms),
        max_ms=max_ms,
        signer=secrets.signer,
    )
    node = Create(token_path(made.token_id), encode_token(made))
    if size_of((node,)) > MULTI_BYTES_MAX:
        decision.reply(Reply(event.token, _refused(ErrorCode.INVALID_REQUEST)))
        return
    decision.write(node, _change(made))
    state.tokens.update([made])
    decision.reply(Reply(event.token, _result(state, made)))


def on_renew_token(state: ControllerState, decision: DecisionBuilder, event: RenewToken) -> None:
    """The token is valid for the period that was asked for; never past its longest lifetime."""
    found = _usable(state, event)
    if isinstance(found, ErrorCode):
        decision.reply(Reply(event.token, _refused(found)))
        return
    longest_ms = state.config.token_expiry_time_ms
    period_ms = min(event.period_ms, longest_ms) if event.period_ms > 0 else longest_ms
    _store(state, decision, event, found, event.now_ms + period_ms)


def on_expire_token(state: ControllerState, decision: DecisionBuilder, event: ExpireToken) -> None:
    """The token ends after the period that was asked for; at once if that is negative."""
    found = _usable(state, event)
    if isinstance(found, ErrorCode):
        decision.reply(Reply(event.token, _refused(found)))
        return
    if event.period_ms >= 0:
        _store(state, decision, event, found, event.now_ms + event.period_ms)
        return
    _remove(state, decision, found)
    ended = replace(found, expiry_ms=event.now_ms)
    decision.reply(Reply(event.token, TokenResult(ErrorCode.NONE, ended)))


def on_expire_tokens(
    state: ControllerState, decision: DecisionBuilder, event: ExpireTokens
) -> None:
    """Remove the tokens that have expired (`delegation.token.expiry.check.interval.ms`)."""
    for token in state.tokens.tokens():
        if token.is_expired(event.now_ms):
            _remove(state, decision, token)


def _usable(state: ControllerState, event: RenewToken | ExpireToken) -> DelegationToken | ErrorCode:
    if not state.tokens.secrets.is_enabled:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    found = state.tokens.with_hmac(event.hmac)
    if found is None:
        return ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    if found.is_expired(event.now_ms):
        return ErrorCode.DELEGATION_TOKEN_EXPIRED
    if not found.belongs_to(event.principal):
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    return found


def _store(
    state: ControllerState,
    decision: DecisionBuilder,
    event: RenewToken | ExpireToken,
    found: DelegationToken,
    expiry_ms: int,
) -> None:
    changed = replace(found, expiry_ms=min(found.max_ms, expiry_ms))
    decision.write(Set(token_path(changed.token_id), encode_token(changed)), _change(changed))
    state.tokens.update([changed])
    decision.reply(Reply(event.token, _result(state, changed)))


def _remove(state: ControllerState, decision: DecisionBuilder, token: DelegationToken) -> None:
    decision.write(Delete(token_path(token.token_id)), _change(token))
    state.tokens.update((), [token.token_id])


def _change(token: DelegationToken) -> Operation:
    return Create(CHANGE_PREFIX, token.token_id.encode(), sequential=True)


def _result(state: ControllerState, token: DelegationToken) -> TokenResult:
    return TokenResult(ErrorCode.NONE, token, state.tokens.secrets.hmac_of(token) or b"")


def _refused(code: ErrorCode) -> TokenResult:
    return TokenResult(code)
