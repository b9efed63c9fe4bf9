"""ListOffsets: the ends of a log, and offsets by timestamp (KIP-79, KIP-207, KIP-405, KIP-734)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k02_list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.log.results import TimestampAndOffset
from headwater_broker.replica.read_service import (
    EARLIEST_LOCAL,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    OffsetQuery,
)

READ_COMMITTED = 1
SPECIAL_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
"""Special timestamp -> the version of ListOffsets that knows it first."""
OFFSET_NOT_AVAILABLE_SINCE = 5
"""Older clients get LEADER_NOT_AVAILABLE instead."""


@handles(ListOffsetsRequest, ListOffsetsResponse, versions=(1, 10))
async def list_offsets(ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Look up each partition by itself: an error of one leaves the others alone."""
    repeated = _repeated(request)
    topics = []
    for topic in request.topics:
        partitions = [
            await _answer(ctx, request, topic.name, row, repeated) for row in topic.partitions
        ]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return ListOffsetsResponse(topics=tuple(topics))


def _repeated(request: ListOffsetsRequest) -> Set[tuple[str, int]]:
    """Partitions named more than once: the client could not match their answers."""
    times = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    return {key for key, count in times.items() if count > 1}


async def _answer(
    ctx: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    row: ListOffsetsPartition,
    repeated: Set[tuple[str, int]],
) -> ListOffsetsPartitionResponse:
    try:
        if not ctx.allowed(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no DESCRIBE on {topic}")
        if (topic, row.partition_index) in repeated:
            text = f"{topic}-{row.partition_index} is named more than once"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        found = await _offset(ctx, request, topic, row)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(
            partition_index=row.partition_index, error_code=_error_code(ctx, error)
        )
    return ListOffsetsPartitionResponse(
        partition_index=row.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if ctx.api_version >= 4 else -1,
    )


async def _offset(
    ctx: RequestContext, request: ListOffsetsRequest, topic: str, row: ListOffsetsPartition
) -> TimestampAndOffset:
    partition = ctx.broker.hosted(topic, row.partition_index)
    if row.timestamp < 0 and ctx.api_version < SPECIAL_SINCE.get(row.timestamp, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {row.timestamp}")
    query = OffsetQuery(
        timestamp=row.timestamp,
        current_leader_epoch=row.current_leader_epoch,
        replica_id=request.replica_id,
        read_committed=request.isolation_level == READ_COMMITTED,
    )
    return await ctx.broker.reads.offset_of(partition, query)


def _error_code(ctx: RequestContext, error: KafkaError) -> ErrorCode:
    is_new = error.code is ErrorCode.OFFSET_NOT_AVAILABLE
    if is_new and ctx.api_version < OFFSET_NOT_AVAILABLE_SINCE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return error.code
