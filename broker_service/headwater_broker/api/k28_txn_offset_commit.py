"""TxnOffsetCommit: commits offsets of a group within a transaction (KIP-98, KIP-447).

The offsets count once the transaction commits. Version 5 also adds the group's partition of
`__consumer_offsets` to the transaction (KIP-890), so that it takes no AddOffsetsToTxn; version 6
names topics by id (KIP-1319). Unknown topics and missing rights to topics are errors of their
partitions; the other partitions commit.
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.wire.apis.k28_txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from headwater_broker.api.committed_rows import check_topic, commits
from headwater_broker.api.context import RequestContext
from headwater_broker.api.registry import handles
from headwater_broker.coordinator.common.shard import Producer
from headwater_broker.coordinator.group.offset_commands import TransactionalCommit
from headwater_broker.coordinator.group.offsets import Commit
from headwater_broker.coordinator.group.service import Codes
from headwater_broker.coordinator.transaction.service import check_transactional_id

NAMES_BY_ID_SINCE = 6
UNKNOWN_GROUP_SINCE = 6
"""Before this version an unknown group is answered as ILLEGAL_GENERATION (KIP-1319)."""
ENLISTS_SINCE = 5
"""From this version on the client leaves AddOffsetsToTxn out (transaction version 2, KIP-890)."""
ABORTABLE_SINCE = 4
LOADING_SINCE = 2
"""Producers before this version cannot handle COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""


@handles(TxnOffsetCommitRequest, TxnOffsetCommitResponse, begins_at_once=True)
async def txn_offset_commit(
    ctx: RequestContext, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    """One error code per partition."""
    refused = _refused(ctx, request)
    names: list[str] = []
    codes: list[ErrorCode] = []
    rows: list[Commit] = []
    for topic in request.topics:
        name, code = ("", refused)
        if not refused:
            name, code = check_topic(ctx, topic.name, topic.topic_id, NAMES_BY_ID_SINCE)
        names.append(name)
        codes.append(code)
        if code is ErrorCode.NONE:
            rows += commits(ctx, name, topic.partitions)
    committed: Codes = {}
    if rows:
        committed = await _commit(ctx, request, tuple(rows))
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return TxnOffsetCommitResponse(
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=p.partition_index,
                        error_code=code or committed.get((name, p.partition_index), unknown),
                    )
                    for p in topic.partitions
                ),
            )
            for topic, name, code in zip(request.topics, names, codes, strict=True)
        )
    )


def _refused(ctx: RequestContext, request: TxnOffsetCommitRequest) -> ErrorCode:
    """The code of the whole request when a right to its transaction or group is missing."""
    if not ctx.allowed(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if not ctx.allowed(Operation.READ, ResourceType.GROUP, request.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


async def _commit(
    ctx: RequestContext, request: TxnOffsetCommitRequest, rows: tuple[Commit, ...]
) -> Codes:
    commit = TransactionalCommit(
        group_id=request.group_id,
        generation=request.generation_id,
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        transactional_id=request.transactional_id,
        producer=Producer(request.producer_id, request.producer_epoch),
        connection=ctx.session.number,
        is_enlisting=ctx.api_version >= ENLISTS_SINCE,
        rows=rows,
    )
    try:
        check_transactional_id(request.transactional_id)
        return await ctx.broker.groups.transactional_commit(commit, ctx.broker.enlistment)
    except KafkaError as error:
        code = client_code(error.code, ctx.api_version)
        return {(row.topic, row.partition): code for row in rows}


def client_code(code: ErrorCode, version: int) -> ErrorCode:
    """The code that a client of this version understands."""
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE:
        return ErrorCode.INVALID_TXN_STATE
    if code is ErrorCode.GROUP_ID_NOT_FOUND and version < UNKNOWN_GROUP_SINCE:
        return ErrorCode.ILLEGAL_GENERATION
    # Retriable, but not to producers that know only errors of group coordinators.
    is_busy = code is ErrorCode.CONCURRENT_TRANSACTIONS and version < ENLISTS_SINCE
    if is_busy or code is ErrorCode.NETWORK_EXCEPTION:
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code
