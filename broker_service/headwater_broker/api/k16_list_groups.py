"""ListGroups: the groups that this broker coordinates, by state (KIP-518) and type."""

from __future__ import annotations

from headwater.errors import KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from headwater_broker.api.admin.forwarding import may_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(ListGroupsRequest, ListGroupsResponse)
async def list_groups(ctx: RequestContext, request: ListGroupsRequest) -> ListGroupsResponse:
    """All groups with DESCRIBE on the cluster; otherwise those with DESCRIBE on the group."""
    states = frozenset(name.lower() for name in request.states_filter)
    types = frozenset(name.lower() for name in request.types_filter)
    try:
        rows = await ctx.broker.groups.list_groups(states, types)
    except KafkaError as error:
        return ListGroupsResponse(error_code=error.code)
    if not may_on_cluster(ctx, Operation.DESCRIBE):
        rows = [r for r in rows if ctx.allowed(Operation.DESCRIBE, ResourceType.GROUP, r.group_id)]
    return ListGroupsResponse(groups=tuple(rows))
