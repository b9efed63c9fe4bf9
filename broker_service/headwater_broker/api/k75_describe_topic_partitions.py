"""DescribeTopicPartitions: topics page by page, with a cursor (KIP-966).

A row lists the ISR, the eligible leader replicas (ELR) and, when both are empty, the last known
ELR. The controller keeps the last ISR of an offline partition, where Kafka moves it to the ELR;
rows show it as Kafka does (`_eligible`, `k03_metadata.client_isr`).
"""

from __future__ import annotations

from collections.abc import Container

from headwater.errors import ErrorCode
from headwater.ports.authorizer import Operation, ResourceType
from headwater.topic_names import INTERNAL_TOPICS, is_legal_name
from headwater.wire.apis.k75_describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from headwater.wire.control import PartitionState
from headwater_broker.api.admin.forwarding import may_on_topic
from headwater_broker.api.api_config import PARTITIONS_PER_REPLY_MAX
from headwater_broker.api.authorized_operations import authorized_operations
from headwater_broker.api.context import RequestContext
from headwater_broker.api.k03_metadata import partition_row
from headwater_broker.api.registry import handles

METADATA_VERSION = 12
"""Of the Metadata version whose rows these resemble."""

Topic = DescribeTopicPartitionsResponseTopic


@handles(DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse)
def describe_topic_partitions(
    ctx: RequestContext, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Topics by name; no topics mean all. At the limit `next_cursor` is where to continue."""
    cursor = request.cursor
    names = {t.name for t in request.topics} or set(ctx.broker.view.topics)
    if cursor is not None:
        if cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names):
            # The whole request is invalid, but only rows have error codes.
            wrong = names if request.topics else {cursor.topic_name}
            rows = [_failed(name, ErrorCode.INVALID_REQUEST) for name in sorted(wrong)]
            return DescribeTopicPartitionsResponse(topics=tuple(rows))
        names = {name for name in names if name >= cursor.topic_name}
    room = max(min(request.response_partition_limit, PARTITIONS_PER_REPLY_MAX), 1)
    rows = []
    refused: list[Topic] = []
    following: Cursor | None = None
    for name in sorted(names):
        if not may_on_topic(ctx, Operation.DESCRIBE, name):
            if request.topics:
                refused.append(Topic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
            continue
        first = cursor.partition_index if cursor and cursor.topic_name == name else 0
        if following is None and room == 0:
            following = Cursor(topic_name=name, partition_index=0)
        if following is not None:
            continue
        row = _topic(ctx, name, first, room)
        rows.append(row)
        room -= len(row.partitions)
        following = _rest(ctx, row)
    return DescribeTopicPartitionsResponse(topics=(*rows, *refused), next_cursor=following)


def _topic(ctx: RequestContext, name: str, first: int, room: int) -> Topic:
    view = ctx.broker.view.topics.get(name)
    if view is None:
        is_legal = is_legal_name(name)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return Topic(
            error_code=unknown if is_legal else ErrorCode.INVALID_TOPIC_EXCEPTION,
            name=name,
            is_internal=name in INTERNAL_TOPICS,
            topic_authorized_operations=authorized_operations(ctx, ResourceType.TOPIC, name),
        )
    indexes = [index for index in sorted(view.partitions) if index >= first][:room]
    return Topic(
        error_code=ErrorCode.NONE,
        name=name,
        topic_id=view.topic_id,
        is_internal=name in INTERNAL_TOPICS,
        partitions=tuple(_partition(ctx, view.partitions[index]) for index in indexes),
        topic_authorized_operations=authorized_operations(ctx, ResourceType.TOPIC, name),
    )


def _rest(ctx: RequestContext, row: Topic) -> Cursor | None:
    """The rest of a topic that did not fit; None if all of it did."""
    view = ctx.broker.view.topics.get(row.name or "")
    if view is None or not row.partitions:
        return None
    last = row.partitions[-1].partition_index
    left = [index for index in view.partitions if index > last]
    return Cursor(topic_name=view.name, partition_index=min(left)) if left else None


def _partition(
    ctx: RequestContext, state: PartitionState
) -> DescribeTopicPartitionsResponsePartition:
    row = partition_row(ctx.broker, ctx.listener, state, METADATA_VERSION)
    elr, last_known_elr = _eligible(state, ctx.broker.view.brokers)
    return DescribeTopicPartitionsResponsePartition(
        error_code=row.error_code,
        partition_index=row.partition_index,
        leader_id=row.leader_id,
        leader_epoch=row.leader_epoch,
        replica_nodes=row.replica_nodes,
        isr_nodes=row.isr_nodes,
        eligible_leader_replicas=elr,
        last_known_elr=last_known_elr,
        offline_replicas=row.offline_replicas,
    )


def _eligible(
    state: PartitionState, live: Container[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ELR and the last known ELR.

    Without a leader, members of the last ISR that are down are eligible: each returns with all that
    is committed. A member that is up and may not lead has lost its disk: it is not eligible, and
    the last known ELR names it only when no replica is eligible.
    """
    if state.leader_id >= 0:
        return state.eligible_leader_replicas, ()
    down = tuple(b for b in state.isr if b not in live)
    elr = (*down, *state.eligible_leader_replicas)
    return elr, () if elr else state.isr


def _failed(name: str, code: ErrorCode) -> Topic:
    return Topic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)
