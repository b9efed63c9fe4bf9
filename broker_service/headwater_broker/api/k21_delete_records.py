"""DeleteRecords: move a log's start, and wait until the live followers moved theirs (KIP-107)."""

from __future__ import annotations

import asyncio
from collections.abc import Container

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
from headwater_broker.replica.partition import Partition

TO_HIGH_WATERMARK = -1
POLL_S = 0.01
"""How often the followers' log starts are looked at: they come with their fetches."""


@handles(DeleteRecordsRequest, DeleteRecordsResponse)
async def delete_records(
    ctx: RequestContext, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Every partition is moved first; then all are waited for together, until the timeout."""
    outcomes: dict[tuple[str, int], Partition | ErrorCode] = {}
    targets: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            key = (topic.name, asked.partition_index)
            try:
                partition = _partition(ctx, *key)
                targets[key] = _move(partition, asked.offset)
                outcomes[key] = partition
            except KafkaError as error:
                outcomes[key] = error.code
    await _replicated(ctx, outcomes, targets, request.timeout_ms)
    return DeleteRecordsResponse(
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=tuple(
                    _result(key, outcomes[key], targets.get(key, -1), ctx.broker.view.brokers)
                    for key in ((topic.name, p.partition_index) for p in topic.partitions)
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


def _move(partition: Partition, offset: int) -> int:
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


async def _replicated(
    ctx: RequestContext,
    outcomes: dict[tuple[str, int], Partition | ErrorCode],
    targets: dict[tuple[str, int], int],
    timeout_ms: int,
) -> None:
    clock = ctx.broker.clock
    deadline = clock.monotonic() + timeout_ms / 1000
    while True:
        late = False
        for key, partition in outcomes.items():
            if isinstance(partition, Partition):
                if not partition.is_leader:
                    outcomes[key] = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif partition.low_watermark(ctx.broker.view.brokers) < targets[key]:
                    late = True
        if not late or clock.monotonic() >= deadline:
            return
        await asyncio.sleep(POLL_S)


def _result(
    key: tuple[str, int], outcome: Partition | ErrorCode, target: int, live: Container[int]
) -> DeleteRecordsPartitionResult:
    if isinstance(outcome, ErrorCode):
        return DeleteRecordsPartitionResult(
            partition_index=key[1], low_watermark=-1, error_code=outcome
        )
    low = outcome.low_watermark(live)
    code = ErrorCode.NONE if low >= target else ErrorCode.REQUEST_TIMED_OUT
    return DeleteRecordsPartitionResult(partition_index=key[1], low_watermark=low, error_code=code)
