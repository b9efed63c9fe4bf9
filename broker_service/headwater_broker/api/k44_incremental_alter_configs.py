"""IncrementalAlterConfigs: sets, deletes, appends to, subtracts from single configs (KIP-339)."""

from __future__ import annotations

from headwater.wire.apis.k44_incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from headwater_broker.api.admin.alter_configs import alter
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse)
async def incremental_alter_configs(
    ctx: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Rows in the order of the request."""
    rows = await alter(ctx, request, IncrementalAlterConfigsResponse, AlterConfigsResourceResponse)
    return IncrementalAlterConfigsResponse(responses=rows)
