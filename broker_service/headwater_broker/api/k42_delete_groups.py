"""DeleteGroups: groups without members go, with their offsets (KIP-229)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from headwater_broker.api.group_rights import require_group
from headwater_broker.api.registry import handles
from headwater_broker.api.services import RequestContext


@handles(DeleteGroupsRequest, DeleteGroupsResponse)
async def delete_groups(ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Each group by itself."""
    rows = [
        DeletableGroupResult(group_id=group_id, error_code=await _delete(ctx, group_id))
        for group_id in request.groups_names
    ]
    return DeleteGroupsResponse(results=tuple(rows))


async def _delete(ctx: RequestContext, group_id: str) -> ErrorCode:
    try:
        require_group(ctx, Operation.DELETE, group_id)
        code: ErrorCode = await ctx.broker.groups.delete_group(group_id)
    except KafkaError as error:
        code = error.code
    return code
