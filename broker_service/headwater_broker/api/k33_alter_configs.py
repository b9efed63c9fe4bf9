"""AlterConfigs: replaces all overrides. Deprecated for IncrementalAlterConfigs (k44)."""

from __future__ import annotations

from headwater.wire.apis.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from headwater_broker.api.admin.alter_configs import alter
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(AlterConfigsRequest, AlterConfigsResponse)
async def alter_configs(ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Rows in the order of the request."""
    rows = await alter(ctx, request, AlterConfigsResponse, AlterConfigsResourceResponse)
    return AlterConfigsResponse(responses=rows)
