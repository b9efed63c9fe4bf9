"""DeleteRecords: move a log's start, and wait until the live followers moved theirs (KIP-107)."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.topic_names import INTERNAL_TOPICS
from headwater.wire.apis.k21_delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.replica.delayed_operations import RecordDeletion
from headwater_broker.replica.partition import Partition

TO_HIGH_WATERMARK = -1


@handles(DeleteRecordsRequest, DeleteRecordsResponse)
async def delete_records(
    ctx: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Move the start of every leader's log first, then wait for all followers together."""
    outcomes: dict[tuple[str, int], RecordDeletion | ErrorCode] = {}
    for topic in request.topics:
        for row in topic.partitions:
            key = (topic.name, row.partition_index)
            try:
                partition = _partition(ctx, *key)
                outcomes[key] = RecordDeletion(partition, _move_start(partition, row.offset))
            except KafkaError as error:
                outcomes[key] = error.code
    deletions = [outcome for outcome in outcomes.values() if isinstance(outcome, RecordDeletion)]
    await ctx.broker.appends.delete_records(deletions, request.timeout_ms)
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(
                    _result(row.partition_index, outcomes[topic.name, row.partition_index])
                    for row in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )


def _partition(ctx: RequestContext, topic: str, index: int) -> Partition:
    if not ctx.allowed(Operation.DELETE, ResourceType.TOPIC, topic):
        raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no DELETE on {topic}")
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal")
    partition = ctx.broker.hosted(topic, index)
    partition.check_leader_epoch(-1)
    return partition


def _move_start(partition: Partition, offset: int) -> int:
    """Move the leader's log start; the offset that it starts at."""
    log = partition.log
    if log.config.is_compacted and not log.config.is_deleted:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{partition.topic} is compacted only")
    target = partition.high_watermark if offset == TO_HIGH_WATERMARK else offset
    if target < 0 or target > partition.high_watermark:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"offset {target} is not within 0 and the high watermark {partition.high_watermark}",
        )
    if target > log.log_start_offset:
        log.delete_records_before(target)
    return target


def _result(index: int, outcome: RecordDeletion | ErrorCode) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, ErrorCode):
        return DeleteRecordsPartitionResult(
            partition_index=index, low_watermark=-1, error_code=outcome
        )
    return DeleteRecordsPartitionResult(
        partition_index=index,
        low_watermark=outcome.low_watermark,
        error_code=outcome.code or ErrorCode.NONE,
    )
