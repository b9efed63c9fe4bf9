"""ApiVersions: the API keys and versions in the registry (KIP-35, KIP-511, KIP-584)."""

from __future__ import annotations

import re

from headwater.errors import ErrorCode
from headwater.wire.apis.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles, rows

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""KIP-511: both names end up in metrics and logs."""


def served_versions() -> tuple[ApiVersion, ...]:
    """One row per registered API key."""
    return tuple(
        ApiVersion(api_key=row.key, min_version=row.advertised_low, max_version=row.high)
        for row in rows().values()
    )


def unsupported_version() -> ApiVersionsResponse:
    """The response to an unknown version of ApiVersions: a version-0 body with its own range."""
    own = tuple(v for v in served_versions() if v.api_key == ApiVersionsRequest.api_key)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


@handles(ApiVersionsRequest, ApiVersionsResponse)
def api_versions(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """All ranges, without features: none is finalized (epoch -1 means unknown)."""
    names = (request.client_software_name, request.client_software_version)
    if ctx.api_version >= 3 and not all(map(_SOFTWARE.fullmatch, names)):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(error_code=ErrorCode.NONE, api_keys=served_versions())
