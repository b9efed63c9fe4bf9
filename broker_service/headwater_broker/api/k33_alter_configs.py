"""AlterConfigs: replaces all overrides of a topic. Deprecated for IncrementalAlterConfigs (k44)."""

from __future__ import annotations

from dataclasses import replace

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from headwater_broker.api.config_rights import refusal
from headwater_broker.api.forwarding import FORWARD_TIMEOUT_MIN_MS, forward
from headwater_broker.api.registry import handles
from headwater_broker.api.services import RequestContext


@handles(AlterConfigsRequest, AlterConfigsResponse)
async def alter_configs(ctx: RequestContext, request: AlterConfigsRequest) -> AlterConfigsResponse:
    """Rows in the order asked."""
    found: dict[tuple[int, str], AlterConfigsResourceResponse] = {}
    allowed = []
    for row in request.resources:
        refused = refusal(ctx, row.resource_type, row.resource_name, Operation.ALTER_CONFIGS)
        if refused is None:
            allowed.append(row)
        else:
            found[row.resource_type, row.resource_name] = _response(row, *refused)
    if allowed:
        asked = replace(request, resources=tuple(allowed))
        try:
            reply = await forward(ctx, asked, AlterConfigsResponse, FORWARD_TIMEOUT_MIN_MS)
            found.update(((r.resource_type, r.resource_name), r) for r in reply.responses)
        except KafkaError as e:
            for row in allowed:
                found[row.resource_type, row.resource_name] = _response(row, e.code, e.detail)
    return AlterConfigsResponse(
        responses=tuple(found[r.resource_type, r.resource_name] for r in request.resources)
    )


def _response(row: AlterConfigsResource, code: int, text: str) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=code,
        error_message=text,
        resource_type=row.resource_type,
        resource_name=row.resource_name,
    )
