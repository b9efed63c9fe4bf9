"""DescribeUserScramCredentials: mechanisms and iterations of users, never their keys (KIP-554)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from urllib.parse import unquote

from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation
from headwater.security.scram_credential import ScramMechanism, parse_credential
from headwater.wire.apis.k50_describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from headwater_broker.api.admin.forwarding import may_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.security.scram_credentials import MECHANISM_NAMES, user_path


@handles(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse)
def describe_user_scram_credentials(
    ctx: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """The named users; without names, all that have a credential."""
    if not may_on_cluster(ctx, Operation.DESCRIBE):
        code, text = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "no DESCRIBE on the cluster"
        # Kafka's rows do not name the users.
        rows = tuple(_failed("", code, text) for _ in request.users or ())
        return DescribeUserScramCredentialsResponse(
            error_code=code, error_message=text, results=rows
        )
    stored = ctx.broker.view.client_quotas
    if not request.users:
        names = sorted(_user(path) for path, row in stored.items() if row.keys() & MECHANISM_NAMES)
        times = Counter(names)
    else:
        times = Counter(user.name for user in request.users)
    rows = tuple(
        _row(name, count, stored.get(user_path(name), {})) for name, count in times.items()
    )
    return DescribeUserScramCredentialsResponse(error_message=None, results=rows)


def _user(path: str) -> str:
    return unquote(path.partition("/")[2])


def _row(name: str, count: int, configs: Mapping[str, str]) -> DescribeUserScramCredentialsResult:
    if count > 1:
        text = f"Cannot describe SCRAM credentials for the same user twice in one request: {name}"
        return _failed(name, ErrorCode.DUPLICATE_RESOURCE, text)
    infos = tuple(
        CredentialInfo(mechanism=m.code, iterations=_iterations(configs[m.value]))
        for m in ScramMechanism
        if m.value in configs
    )
    if not infos:
        text = f"Attempt to describe a user credential that does not exist: {name}"
        return _failed(name, ErrorCode.RESOURCE_NOT_FOUND, text)
    return DescribeUserScramCredentialsResult(user=name, error_message=None, credential_infos=infos)


def _iterations(text: str) -> int:
    """0 for a credential that another tool has spoiled."""
    try:
        return parse_credential(text).iterations
    except ValueError:
        return 0


def _failed(name: str, code: ErrorCode, text: str) -> DescribeUserScramCredentialsResult:
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=text)
