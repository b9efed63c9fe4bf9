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
    ctx: RequestContext, requested: OffsetForLeaderTopic, *, is_follower: bool
) -> OffsetForLeaderTopicResult:
    allowed = is_follower or may_on_topic(ctx, Operation.DESCRIBE, requested.topic)
    return OffsetForLeaderTopicResult(
        topic=requested.topic,
        partitions=tuple(
            _partition(ctx, requested.topic, row)
            if allowed
            else _error(row, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            for row in requested.partitions
        ),
    )


def _partition(
    ctx: RequestContext, topic: str, requested: OffsetForLeaderPartition
) -> EpochEndOffset:
    try:
        partition = ctx.broker.hosted(topic, requested.partition)
        partition.check_leader_epoch(requested.current_leader_epoch)
    except KafkaError as refused:
        return _error(requested, refused.code)
    end = partition.epoch_end(requested.leader_epoch)
    return EpochEndOffset(
        error_code=ErrorCode.NONE,
        partition=requested.partition,
        leader_epoch=end.epoch,
        end_offset=end.end_offset,
    )


def _error(requested: OffsetForLeaderPartition, code: ErrorCode) -> EpochEndOffset:
    return EpochEndOffset(error_code=code, partition=requested.partition)
