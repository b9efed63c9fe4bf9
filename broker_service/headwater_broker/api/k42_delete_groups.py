"""DeleteGroups: deletes groups without members, and their offsets (KIP-229)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k42_delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import each_group, require_group
from headwater_broker.api.registry import handles


@handles(DeleteGroupsRequest, DeleteGroupsResponse)
async def delete_groups(ctx: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """One error code per group. A group that occurs twice is deleted once: the second attempt would
    not find it."""
    names = tuple(dict.fromkeys(request.groups_names))
    codes = await each_group(names, lambda group_id: _delete(ctx, group_id))
    rows = (
        DeletableGroupResult(group_id=group_id, error_code=code)
        for group_id, code in zip(names, codes, strict=True)
    )
    return DeleteGroupsResponse(results=tuple(rows))


async def _delete(ctx: RequestContext, group_id: str) -> ErrorCode:
    try:
        require_group(ctx, Operation.DELETE, group_id)
        code: ErrorCode = await ctx.broker.groups.delete_group(group_id)
    except KafkaError as error:
        code = error.code
    return code
