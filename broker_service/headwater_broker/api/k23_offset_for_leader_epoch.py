"""OffsetForLeaderEpoch: the end offset of a leader epoch (KIP-101, KIP-320).

Followers and consumers find out with it where their log or position diverges from the leader's.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k23_offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from headwater_broker.api.admin.forwarding import may_on_cluster, may_on_topic
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles


@handles(OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse)
def offset_for_leader_epoch(
    ctx: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """One end offset per partition; epoch and offset are -1 for an unknown epoch."""
    is_follower = may_on_cluster(ctx, Operation.CLUSTER_ACTION)
    topics = tuple(_topic(ctx, row, is_follower=is_follower) for row in request.topics)
    return OffsetForLeaderEpochResponse(topics=topics)


def _topic(
    ctx: RequestContext, asked: OffsetForLeaderTopic, *, is_follower: bool
) -> OffsetForLeaderTopicResult:
    allowed = is_follower or may_on_topic(ctx, Operation.DESCRIBE, asked.topic)
    return OffsetForLeaderTopicResult(
        topic=asked.topic,
        partitions=tuple(
            _partition(ctx, asked.topic, row)
            if allowed
            else _error(row, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            for row in asked.partitions
        ),
    )


def _partition(ctx: RequestContext, topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = ctx.broker.hosted(topic, asked.partition)
        partition.check_leader_epoch(asked.current_leader_epoch)
    except KafkaError as refused:
        return _error(asked, refused.code)
    end = partition.epoch_end(asked.leader_epoch)
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=asked.partition,
        leader_epoch=end.epoch,
        end_offset=end.end_offset,
    )


def _error(asked: OffsetForLeaderPartition, code: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(error_code=code, partition=asked.partition)
