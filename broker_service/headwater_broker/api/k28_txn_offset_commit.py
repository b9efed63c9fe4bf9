"""TxnOffsetCommit: commits offsets of a group within a transaction (KIP-98, KIP-447).

The offsets count once the transaction commits. Version 5 also adds the group's partition of
`__consumer_offsets` to the transaction (KIP-890), so that it takes no AddOffsetsToTxn; version 6
names topics by id (KIP-1319). Unknown topics and missing rights to topics are errors of their
partitions; the other partitions commit.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

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
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.registry import handles
from headwater_broker.api.short_fields import short_count, short_text
from headwater_broker.api.transaction_requests import has_own_id
from headwater_broker.coordinator.common.shard import Producer
from headwater_broker.coordinator.group.offset_commands import TransactionalCommit
from headwater_broker.coordinator.group.offsets import Commit
from headwater_broker.coordinator.group.service import Codes
from headwater_broker.coordinator.transaction.service import check_transactional_id
from headwater_broker.coordinator.transaction.transaction import Partition, ProducerIdentity

NAMES_BY_ID_SINCE = 6
UNKNOWN_GROUP_SINCE = 6
"""Before this version an unknown group is answered as ILLEGAL_GENERATION (KIP-1319)."""
ENLISTS_SINCE = 5
"""From this version on the client leaves AddOffsetsToTxn out (transaction version 2, KIP-890)."""
ABORTABLE_SINCE = 4
LOADING_SINCE = 2
"""Producers before this version cannot handle COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
GENERATION_SINCE = TxnOffsetCommitRequest.flexible
"""From this version on a request names its member (KIP-447), and is flexible."""
NO_GENERATION = -1
_PRODUCER = struct.Struct(">qhi")
"""Producer id, epoch, generation."""
_unpack_row = struct.Struct(">iqi").unpack_from
"""Partition, offset, leader epoch."""
_pack_code = struct.Struct(">ihB").pack
_pack_head = struct.Struct(">iiBiB").pack
"""Size, correlation id, tagged fields, throttle_time_ms, number of topics plus one."""


class _UsualCommit(NamedTuple):
    """The fields of a request of versions 3 to 5 for one topic, without membership of a group."""

    transactional_id: str
    group_id: str
    producer: ProducerIdentity
    topic: bytes
    """As it is encoded."""
    rows: tuple[Commit, ...]


def _usual_commit(view: memoryview, at: int) -> _UsualCommit | None:
    """None for any other request. Raises as the codec does for one that ends too early."""
    transactional_id, at = short_text(view, at)
    group_id, at = short_text(view, at)
    producer_id, epoch, generation = _PRODUCER.unpack_from(view, at)
    at += _PRODUCER.size
    # No member id, no instance id, one topic.
    if not transactional_id or not group_id or generation != NO_GENERATION:
        return None
    if bytes(view[at : at + 3]) != b"\1\0\2":
        return None
    start = at + 3
    name, at = short_text(view, start)
    topic = bytes(view[start:at])
    count, at = short_count(view, at, flexible=True)
    if not name or not count:
        return None
    rows: list[Commit] = []
    for _ in range(count):
        index, offset, leader_epoch = _unpack_row(view, at)
        metadata, at = short_text(view, at + 16)
        if metadata is None or view[at]:
            return None
        rows.append(Commit(name, index, offset, leader_epoch, metadata))
        at += 1
    if bytes(view[at:]) != b"\0\0":  # no tagged fields, and nothing behind
        return None
    producer = ProducerIdentity(producer_id, epoch)
    return _UsualCommit(transactional_id, group_id, producer, topic, tuple(rows))


def commit_at_once(
    peer: Peer, view: memoryview, at: int, _end: int, version: int, correlation_id: int
) -> bytes | None:
    """TxnOffsetCommit that need not wait: see `registry.AtOnce`. The codec is the oracle of its
    test."""
    is_usual = GENERATION_SINCE <= version < NAMES_BY_ID_SINCE
    usual = _usual_commit(view, at) if is_usual else None
    if usual is None or not _is_allowed(peer, usual):
        return None
    services = peer.services
    commit = TransactionalCommit(
        group_id=usual.group_id,
        transactional_id=usual.transactional_id,
        producer=Producer(*usual.producer),
        is_enlisting=version >= ENLISTS_SINCE,
        rows=usual.rows,
        connection=peer.session.number,
    )
    transactions = services.transactions
    transactional_id, producer = usual.transactional_id, usual.producer

    def enlists(partitions: Mapping[Partition, UUID], coordinator_epoch: int) -> bool:
        if commit.is_enlisting:
            return transactions.add_at_once(transactional_id, producer, partitions)
        enlisted = frozenset(partitions)
        return transactions.holds_at_once(transactional_id, producer, enlisted, coordinator_epoch)

    try:
        codes = services.groups.commit_at_once(commit, enlists)
    except KafkaError:
        return None
    if codes is None:
        return None
    rows = [_pack_code(r.partition, codes[r.topic, r.partition], 0) for r in usual.rows]
    body = b"".join((usual.topic, bytes((len(rows) + 1,)), *rows, b"\0\0"))
    return _pack_head(len(body) + 10, correlation_id, 0, 0, 2) + body


def _is_allowed(peer: Peer, usual: _UsualCommit) -> bool:
    """True when the rights are remembered, and all partitions exist."""
    has_allowed, partition = peer.session.has_allowed, peer.services.view.partition
    read, name = Operation.READ, usual.rows[0].topic
    return (
        has_own_id(peer, usual.transactional_id)
        and has_allowed(read, ResourceType.GROUP, usual.group_id)
        and has_allowed(read, ResourceType.TOPIC, name)
        and all(partition(name, row.partition) is not None for row in usual.rows)
    )


@handles(
    TxnOffsetCommitRequest, TxnOffsetCommitResponse, begins_at_once=True, at_once=commit_at_once
)
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
