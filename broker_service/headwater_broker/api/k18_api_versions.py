"""ApiVersions: the API keys and versions in the registry (KIP-35, KIP-511, KIP-584).

`transaction.version` 2 is finalized, so that clients use the second version of the transaction
protocol (KIP-890) as soon as they support it; those that do not use the first one. `group.version`
1 stands for consumer groups (KIP-848), `share.version` 1 for share groups (KIP-932).
"""

from __future__ import annotations

import re

from headwater.errors import ErrorCode
from headwater.wire.apis.k18_api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from headwater.wire.apis.k22_init_producer_id import InitProducerIdRequest
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles, rows

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""KIP-511: both names end up in metrics and logs."""
FEATURES = {"transaction.version": 2, "group.version": 1, "share.version": 1}
"""The finalized version of each feature, the highest there is."""
FEATURES_EPOCH = 1
"""Of the finalized features, which never change while a broker runs; -1 means unknown."""
ZERO_LOW_SINCE = 4
"""Earlier versions leave out features whose lowest version is 0: clients would refuse these."""
TWO_PHASE_SINCE = 6
"""InitProducerId version of KIP-939: it is advertised when it is enabled."""


OWN_SOFTWARE = "headwater"
"""client_software_name of Headwater's own clients."""
OWN_KEYS_SINCE = 10_000
"""API keys that Apache Kafka does not have: no other client meets them."""


def served_versions(*, two_phase: bool = False, own_client: bool = False) -> tuple[ApiVersion, ...]:
    """One row per registered API key."""

    def highest(key: int, high: int) -> int:
        is_hidden = key == InitProducerIdRequest.api_key and not two_phase
        return min(high, TWO_PHASE_SINCE - 1) if is_hidden else high

    return tuple(
        ApiVersion(
            api_key=row.key, min_version=row.advertised_low, max_version=highest(row.key, row.high)
        )
        for row in rows().values()
        if row.key < OWN_KEYS_SINCE or own_client
    )


def unsupported_version() -> ApiVersionsResponse:
    """The response to an unknown version of ApiVersions: a version-0 body with its own range."""
    own = tuple(v for v in served_versions() if v.api_key == ApiVersionsRequest.api_key)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=own)


@handles(ApiVersionsRequest, ApiVersionsResponse)
def api_versions(ctx: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    """All ranges, and the features."""
    names = (request.client_software_name, request.client_software_version)
    if ctx.api_version >= 3 and not all(map(_SOFTWARE.fullmatch, names)):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    supported = tuple(
        SupportedFeatureKey(name=name, min_version=0, max_version=version)
        for name, version in FEATURES.items()
    )
    finalized = tuple(
        FinalizedFeatureKey(name=name, max_version_level=version, min_version_level=version)
        for name, version in FEATURES.items()
    )
    return ApiVersionsResponse(
        error_code=ErrorCode.NONE,
        api_keys=served_versions(
            two_phase=ctx.broker.transactions.is_two_phase_enabled,
            own_client=request.client_software_name == OWN_SOFTWARE,
        ),
        supported_features=supported if ctx.api_version >= ZERO_LOW_SINCE else (),
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=finalized,
    )
