"""AlterUserScramCredentials: sets and removes SCRAM credentials of users (KIP-554)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from headwater_broker.api.admin.forwarding import FORWARD_TIMEOUT_MIN_MS, forward, may_on_cluster
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
        return await forward(
            ctx, request, AlterUserScramCredentialsResponse, FORWARD_TIMEOUT_MIN_MS
        )
    except KafkaError as error:
        return _refused(request, error.code, error.detail)


def _refused(
    request: AlterUserScramCredentialsRequest, code: ErrorCode, text: str
) -> AlterUserScramCredentialsResponse:
    names = [row.name for row in request.deletions] + [row.name for row in request.upsertions]
    rows = (
        AlterUserScramCredentialsResult(user=user, error_code=code, error_message=text)
        for user in dict.fromkeys(names)
    )
    return AlterUserScramCredentialsResponse(results=tuple(rows))
