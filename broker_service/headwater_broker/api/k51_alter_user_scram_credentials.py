"""AlterUserScramCredentials: sets and removes SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.security.scram_credential import mechanism_of_code
from headwater.wire.apis.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from headwater_broker.api.admin.forwarding import FORWARD_TIMEOUT_MIN_MS, forward, may_on_cluster
from headwater_broker.api.admin.security_audit import audit
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse)
async def alter_user_scram_credentials(
    ctx: RequestContext, request: AlterUserScramCredentialsRequest
) -> AlterUserScramCredentialsResponse:
    """One row per user. The client sends no password, but the salted one."""
    if not may_on_cluster(ctx, Operation.ALTER):
        text = "no ALTER on the cluster"
        return _refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)
    try:
        reply = await forward(
            ctx, request, AlterUserScramCredentialsResponse, FORWARD_TIMEOUT_MIN_MS
        )
    except KafkaError as error:
        return _refused(request, error.code, error.detail)
    changed = {row.user for row in reply.results if not row.error_code}
    for change in _changes(request):
        if change.user in changed:
            audit(ctx, f"{change.what} from host = {ctx.client_host}")
    return reply


class _Change(NamedTuple):
    user: str
    what: str


def _changes(request: AlterUserScramCredentialsRequest) -> Iterator[_Change]:
    """As audit lines say it: without anything of the credential."""
    for removed in request.deletions:
        yield _Change(removed.name, f"removed {_name(removed.mechanism)} of User:{removed.name}")
    for put in request.upsertions:
        yield _Change(put.name, f"set {_name(put.mechanism)} of User:{put.name}")


def _name(code: int) -> str:
    mechanism = mechanism_of_code(code)
    return f"mechanism {code}" if mechanism is None else mechanism.value


def _refused(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, text: str
) -> AlterUserScramCredentialsResponse:
    names = [row.name for row in request.deletions] + [row.name for row in request.upsertions]
    rows = (
        AlterUserScramCredentialsResult(user=user, error_code=code, error_message=text)
        for user in dict.fromkeys(names)
    )
    return AlterUserScramCredentialsResponse(results=tuple(rows))
