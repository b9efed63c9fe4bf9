"""ListOffsets: the ends of a log, and offsets by timestamp (KIP-79, KIP-207, KIP-405, KIP-734)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.ports.remote_log import RemoteLogError
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
from headwater_broker.replica.partition import Partition

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
READ_COMMITTED = 1
DEBUG_REPLICA = -2
UNKNOWN = TimestampAndOffset(-1, -1, -1)
SPECIAL_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
NOT_AVAILABLE_SINCE = 5


@handles(ListOffsetsRequest, ListOffsetsResponse, versions=(1, 10))
async def list_offsets(ctx: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """Each partition by itself: one error spoils nothing else."""
    topics = []
    question = _Question(ctx, request, _repeated(request))
    for topic in request.topics:
        partitions = [await _answer(question, topic.name, p) for p in topic.partitions]
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return ListOffsetsResponse(topics=tuple(topics))


def _repeated(request: ListOffsetsRequest) -> frozenset[tuple[str, int]]:
    times = Counter((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    return frozenset(key for key, count in times.items() if count > 1)


async def _answer(
    question: _Question, topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    ctx = question.ctx
    try:
        if not ctx.allowed(Operation.DESCRIBE, ResourceType.TOPIC, topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no DESCRIBE on {topic}")
        if (topic, asked.partition_index) in question.repeated:
            text = f"{topic}-{asked.partition_index} is named more than once"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        found = await _tiered(question, topic, asked) or _lookup(question, topic, asked)
    except KafkaError as error:
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, error_code=error.code
        )
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=ErrorCode.NONE,
        timestamp=found.timestamp,
        offset=found.offset,
        leader_epoch=found.leader_epoch if ctx.api_version >= 4 else -1,
    )


@dataclass(frozen=True, slots=True)
class _Question:
    ctx: RequestContext
    request: ListOffsetsRequest
    repeated: frozenset[tuple[str, int]]
    """Named more than once: the caller could not tell which answer is whose."""


async def _tiered(
    question: _Question, topic: str, asked: ListOffsetsPartition
) -> TimestampAndOffset | None:
    """A time is looked for in the table first, where the table holds what no local segment does."""
    services = question.ctx.broker
    partition = services.replicas.partitions.get((topic, asked.partition_index))
    remote_log = services.remote_log
    if asked.timestamp < 0 or partition is None or remote_log is None or not partition.is_leader:
        return None
    partition.check_leader_epoch(asked.current_leader_epoch)
    start, local_start = partition.log.log_start_offset, partition.log.local_log_start_offset
    if start >= local_start:
        return None
    where = services.tiered_topic(partition.topic, partition.topic_id)
    try:
        found = await remote_log.find_timestamp(
            where, asked.partition_index, asked.timestamp, start, local_start
        )
    except RemoteLogError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{topic} by time: {error}") from error
    if found is None:
        return None
    return TimestampAndOffset(found.offset, found.timestamp_ms, found.leader_epoch)


def _lookup(question: _Question, topic: str, asked: ListOffsetsPartition) -> TimestampAndOffset:
    ctx, request = question.ctx, question.request
    services = ctx.broker
    partition = services.hosted(topic, asked.partition_index)
    if request.replica_id != DEBUG_REPLICA:
        partition.check_leader_epoch(asked.current_leader_epoch)
    special = asked.timestamp
    if special < 0 and ctx.api_version < SPECIAL_SINCE.get(special, 0):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {special}")
    log = partition.log
    if special == EARLIEST:
        return log.earliest()
    if special == EARLIEST_LOCAL:
        return log.earliest_local()
    if special == LATEST_TIERED:
        end = services.tiered_end(partition.topic_id, asked.partition_index)
        return UNKNOWN if not end else TimestampAndOffset(end - 1, -1, -1)
    if special < MAX_TIMESTAMP:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {special}")
    return _below_upper(question, partition, special)


def _below_upper(question: _Question, partition: Partition, special: int) -> TimestampAndOffset:
    """LATEST, MAX_TIMESTAMP or a time: what depends on how far this reader may see."""
    log = partition.log
    upper = _upper_offset(question, partition)
    found: TimestampAndOffset | None = None
    if special >= 0:
        found = log.offset_for_timestamp(special, upper)
    if found is None:
        _check_current(question, partition)
    if special == LATEST:
        return TimestampAndOffset(upper, -1, partition.leader_epoch)
    if special == MAX_TIMESTAMP:
        found = log.max_timestamp_offset(upper)
    return found or UNKNOWN


def _check_current(question: _Question, partition: Partition) -> None:
    """What lies beyond a new leader's high watermark may be committed: raises
    OFFSET_NOT_AVAILABLE (KIP-207). What is found below it, is."""
    if question.request.replica_id < 0 and not partition.high_watermark_is_current:
        is_new = question.ctx.api_version >= NOT_AVAILABLE_SINCE
        code = ErrorCode.OFFSET_NOT_AVAILABLE if is_new else ErrorCode.LEADER_NOT_AVAILABLE
        raise KafkaError(code, "the high watermark has not reached this leader epoch's start")


def _upper_offset(question: _Question, partition: Partition) -> int:
    """How far this reader may see."""
    request = question.request
    if request.replica_id >= 0:
        return partition.log.log_end_offset
    if request.isolation_level == READ_COMMITTED:
        return partition.last_stable_offset
    return partition.high_watermark
