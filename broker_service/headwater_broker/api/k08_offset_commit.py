"""OffsetCommit: commits offsets of a group; they are durable when the response is sent.

Unknown topics and missing rights are errors of their partitions; the other partitions commit.
Version 9 takes member epochs, version 10 names topics by id (KIP-848).
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from headwater_broker.api.committed_rows import check_topic, commits
from headwater_broker.api.context import RequestContext
from headwater_broker.api.group_authorization import NAMES_BY_ID_SINCE, require_group
from headwater_broker.api.registry import handles
from headwater_broker.coordinator.group.offset_commands import OffsetCommit
from headwater_broker.coordinator.group.offsets import Commit


@handles(OffsetCommitRequest, OffsetCommitResponse, begins_at_once=True)
async def offset_commit(ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """One error code per partition."""
    names: list[str] = []
    refused: list[ErrorCode] = []
    rows: list[Commit] = []
    for topic in request.topics:
        name, code = check_topic(ctx, topic.name, topic.topic_id, NAMES_BY_ID_SINCE)
        names.append(name)
        refused.append(code)
        if code is ErrorCode.NONE:
            rows += commits(ctx, name, topic.partitions)
    codes = {}
    denied = ErrorCode.NONE
    try:
        require_group(ctx, Operation.READ, request.group_id)
    except KafkaError as error:
        denied = error.code
    if rows and not denied:
        try:
            codes = await ctx.broker.groups.commit(_commit_request(ctx, request, tuple(rows)))
        except KafkaError as error:
            # Rows that were refused before keep their own codes, as in Kafka.
            codes = {(row.topic, row.partition): error.code for row in rows}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=p.partition_index,
                        error_code=denied or code or codes.get((name, p.partition_index), unknown),
                    )
                    for p in topic.partitions
                ),
            )
            for topic, name, code in zip(request.topics, names, refused, strict=True)
        )
    )


def _commit_request(
    ctx: RequestContext, request: OffsetCommitRequest, rows: tuple[Commit, ...]
) -> OffsetCommit:
    return OffsetCommit(
        group_id=request.group_id,
        generation=request.generation_id_or_member_epoch,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        retention_ms=request.retention_time_ms,
        rows=rows,
        version=ctx.api_version,
    )
