"""DescribeShareGroupOffsets: where share groups stand in their partitions, and their lag (KIP-932).

A share partition without a state has start offset -1 and lag -1.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import each_group, require_group
from headwater_broker.api.registry import handles
from headwater_broker.replica.share.ports import UNKNOWN_START_OFFSET, ShareStateSummary

NO_LAG = -1
NO_TOPIC = UUID(int=0)

Row = DescribeShareGroupOffsetsResponsePartition
TopicRow = DescribeShareGroupOffsetsResponseTopic
Summaries = Mapping[tuple[UUID, int], ShareStateSummary | KafkaError]


@handles(DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse)
async def describe_share_group_offsets(
    ctx: RequestContext, request: DescribeShareGroupOffsetsRequest
) -> DescribeShareGroupOffsetsResponse:
    """The wanted partitions of each group; without topics all that it has read from."""
    rows = await each_group(request.groups, lambda group: _describe(ctx, group))
    return DescribeShareGroupOffsetsResponse(groups=tuple(rows))


async def _describe(
    ctx: RequestContext, wanted: DescribeShareGroupOffsetsRequestGroup
) -> DescribeShareGroupOffsetsResponseGroup:
    try:
        require_group(ctx, Operation.DESCRIBE, wanted.group_id)
        if wanted.topics is None:
            topics = await _all(ctx, wanted.group_id)
        else:
            asked = [(topic.topic_name, tuple(topic.partitions)) for topic in wanted.topics]
            topics = await _named(ctx, wanted.group_id, asked)
    except KafkaError as error:
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=wanted.group_id,
            topics=(),
            error_code=error.code,
            error_message=error.detail or None,
        )
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=wanted.group_id, topics=tuple(topics), error_code=ErrorCode.NONE
    )


def _may_describe(ctx: RequestContext, topic: str) -> bool:
    return ctx.allowed(Operation.DESCRIBE, ResourceType.TOPIC, topic)


async def _all(ctx: RequestContext, group_id: str) -> list[TopicRow]:
    """Topics without the right to describe them are left out, as are deleted ones."""
    found = await ctx.broker.groups.shares.summaries(group_id, None)
    indexes: dict[UUID, list[int]] = {}
    for topic_id, index in found:
        indexes.setdefault(topic_id, []).append(index)
    named = {
        topic_id: known.name
        for topic_id in indexes
        if (known := ctx.broker.view.topic_by_id.get(topic_id)) is not None
        and _may_describe(ctx, known.name)
    }
    ends = await _ends(ctx, found, named)
    return [
        TopicRow(
            topic_name=name,
            topic_id=topic_id,
            partitions=tuple(
                _row(index, found[topic_id, index], ends.get((name, index)))
                for index in indexes[topic_id]
            ),
        )
        for topic_id, name in named.items()
    ]


async def _named(
    ctx: RequestContext, group_id: str, asked: list[tuple[str, tuple[int, ...]]]
) -> list[TopicRow]:
    view = ctx.broker.view
    named: dict[UUID, str] = {}
    wanted: list[tuple[UUID, int]] = []
    for name, partitions in asked:
        known = view.topics.get(name)
        if known is not None and _may_describe(ctx, name):
            named[known.topic_id] = name
            wanted += [(known.topic_id, index) for index in partitions if index in known.partitions]
    found = await ctx.broker.groups.shares.summaries(group_id, wanted)
    ends = await _ends(ctx, found, named)
    rows = []
    for name, partitions in asked:
        known = view.topics.get(name)
        topic_id = NO_TOPIC if known is None else known.topic_id
        # Of a topic that is not known there is no offset, as in Kafka.
        code = ErrorCode.NONE if known is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if not _may_describe(ctx, name):
            code, topic_id = ErrorCode.TOPIC_AUTHORIZATION_FAILED, NO_TOPIC
        parts = []
        for index in partitions:
            summary = found.get((topic_id, index))
            parts.append(
                _refused(index, KafkaError(code, ""))
                if summary is None
                else _row(index, summary, ends.get((name, index)))
            )
        rows.append(TopicRow(topic_name=name, topic_id=topic_id, partitions=tuple(parts)))
    return rows


async def _ends(
    ctx: RequestContext, found: Summaries, named: Mapping[UUID, str]
) -> Mapping[tuple[str, int], int]:
    """End offsets of the partitions whose lag is known."""
    wanted = [
        (named[topic_id], index)
        for (topic_id, index), summary in found.items()
        if topic_id in named and isinstance(summary, ShareStateSummary) and _has_lag(summary)
    ]
    return await ctx.broker.end_offsets(wanted)


def _has_lag(summary: ShareStateSummary) -> bool:
    return summary.start_offset >= 0 and summary.delivery_complete_count >= 0


def _row(index: int, summary: ShareStateSummary | KafkaError, end: int | None) -> Row:
    if isinstance(summary, KafkaError):
        return _refused(index, summary)
    lag = NO_LAG
    if end is not None and _has_lag(summary):
        lag = max(end - summary.start_offset - summary.delivery_complete_count, 0)
    return Row(
        partition_index=index,
        start_offset=summary.start_offset,
        leader_epoch=summary.leader_epoch,
        lag=lag,
        error_code=ErrorCode.NONE,
    )


def _refused(index: int, error: KafkaError) -> Row:
    return Row(
        partition_index=index,
        start_offset=UNKNOWN_START_OFFSET,
        leader_epoch=0,
        error_code=error.code,
        error_message=error.detail or None,
    )
