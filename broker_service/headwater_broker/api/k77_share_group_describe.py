"""ShareGroupDescribe: epochs and members of share groups, and what they are assigned (KIP-932)."""

from __future__ import annotations

from headwater.wire.apis.k77_share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_descriptions import described
from headwater_broker.api.registry import handles


@handles(ShareGroupDescribeRequest, ShareGroupDescribeResponse)
async def share_group_describe(
    ctx: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    """One description or error per group."""
    groups = await described(
        ctx,
        request.group_ids,
        DescribedGroup,
        ctx.broker.groups.shares.describe,
        _topics,
        with_operations=request.include_authorized_operations,
    )
    return ShareGroupDescribeResponse(groups=groups)


def _topics(row: DescribedGroup) -> set[str]:
    assigned = {topic.topic_name for m in row.members for topic in m.assignment.topic_partitions}
    return assigned | {name for m in row.members for name in m.subscribed_topic_names}
