"""ConsumerGroupDescribe: epochs, members, their present and target assignments (KIP-848).

A group of another kind is GROUP_ID_NOT_FOUND: tools then ask by DescribeGroups.
"""

from __future__ import annotations

from headwater.wire.apis.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_descriptions import described
from headwater_broker.api.registry import handles


@handles(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse)
async def consumer_group_describe(
    ctx: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """One description or error per group."""
    groups = await described(
        ctx,
        request.group_ids,
        DescribedGroup,
        ctx.broker.groups.consumers.describe,
        _topics,
        with_operations=request.include_authorized_operations,
    )
    return ConsumerGroupDescribeResponse(groups=groups)


def _topics(row: DescribedGroup) -> set[str]:
    return {
        topic.topic_name
        for member in row.members
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }
