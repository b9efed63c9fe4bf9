"""DescribeProducers: the active producer ids of a partition and their state (KIP-664).

Followers answer too, so that `kafka-transactions.sh` can compare replicas.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.topic_names import is_legal_name
from headwater.wire.apis.k61_describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicRequest,
    TopicResponse,
)
from headwater_broker.api.admin.forwarding import may_on_topic
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.log.producer_state_manager import ProducerEntry
from headwater_broker.log.unified_log import UnifiedLog

NO_TRANSACTION = -1


@handles(DescribeProducersRequest, DescribeProducersResponse)
def describe_producers(
    ctx: RequestContext, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """One row per requested partition."""
    return DescribeProducersResponse(topics=tuple(_topic(ctx, row) for row in request.topics))


def _topic(ctx: RequestContext, requested: TopicRequest) -> TopicResponse:
    # A name that no topic can have is not secret: Kafka refuses it before it checks rights.
    may_read = not is_legal_name(requested.name) or may_on_topic(
        ctx, Operation.READ, requested.name
    )
    return TopicResponse(
        name=requested.name,
        partitions=tuple(
            _partition(ctx, requested.name, index)
            if may_read
            else PartitionResponse(
                partition_index=index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
            )
            for index in requested.partition_indexes
        ),
    )


def _partition(ctx: RequestContext, topic: str, index: int) -> PartitionResponse:
    try:
        log = _log(ctx, topic, index)
    except KafkaError as error:
        return PartitionResponse(
            partition_index=index, error_code=error.code, error_message=error.detail
        )
    entries = sorted(log.producers.entries.values(), key=lambda entry: entry.producer_id)
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=tuple(_producer(entry) for entry in entries),
    )


def _log(ctx: RequestContext, topic: str, index: int) -> UnifiedLog:
    services = ctx.broker
    if not is_legal_name(topic):
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic!r} is not a legal topic name")
    hosted = services.hosted(topic, index)
    if hosted.offline_reason:
        lost = hosted.storage_error
        code = ErrorCode.KAFKA_STORAGE_ERROR if lost else ErrorCode.NOT_LEADER_OR_FOLLOWER
        raise KafkaError(code, f"{topic}-{index}: {hosted.offline_reason}")
    return hosted.log


def _producer(entry: ProducerEntry) -> ProducerState:
    began = entry.transaction_first_offset
    return ProducerState(
        producer_id=entry.producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=NO_TRANSACTION if began is None else began,
    )
