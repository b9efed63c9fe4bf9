"""AddPartitionsToTxn: enlists partitions in a transaction (KIP-98), or verifies them (KIP-890).

Versions up to 3 come from clients, with one transactional id. Later ones come from brokers, for
many transactional ids: a partition's leader enlists or verifies what a producer writes to it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.topic_names import INTERNAL_TOPICS
from headwater.wire.apis.k24_add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from headwater_broker.api.admin.forwarding import may_on_topic, require_on_cluster
from headwater_broker.api.context import RequestContext
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.registry import handles
from headwater_broker.api.short_fields import is_end, short_count, short_producer, short_text
from headwater_broker.api.transaction_requests import (
    client_code,
    has_own_id,
    require_transactional_id,
)
from headwater_broker.coordinator.transaction.service import (
    check_storable,
    check_transactional_id,
)
from headwater_broker.coordinator.transaction.transaction import Partition, ProducerIdentity

FROM_BROKERS_SINCE = 4
FLEXIBLE_SINCE = AddPartitionsToTxnRequest.flexible
NO_TOPIC_ID = UUID(int=0)
_pack_head = struct.Struct(">iii").pack
_pack_flexible_head = struct.Struct(">iiBi").pack
"""Size, correlation id, tagged fields if flexible, throttle_time_ms."""

Codes = Mapping[Partition, ErrorCode]


def add_at_once(
    peer: Peer, view: memoryview, at: int, end: int, version: int, correlation_id: int
) -> bytes | None:
    """A client's AddPartitionsToTxn of new partitions: see `registry.AtOnce`. The codec is the
    oracle of its test."""
    if version >= FROM_BROKERS_SINCE:
        return None
    is_flexible = version >= FLEXIBLE_SINCE
    transactional_id, at = short_text(view, at, flexible=is_flexible)
    if not transactional_id or not has_own_id(peer, transactional_id):
        return None
    producer, at = short_producer(view, at)
    topics = _usual_topics(view, at, end, is_flexible)
    partitions = None if topics is None else _known(peer, topics)
    if topics is None or partitions is None:
        return None
    service = peer.services.transactions
    if not service.add_at_once(transactional_id, producer, partitions, peer.session.number):
        return None
    if not is_flexible:
        body = b"".join(_classic_row(*topic) for topic in topics.items())
        head = _pack_head(len(body) + 12, correlation_id, 0)
        return head + len(topics).to_bytes(4, "big") + body
    body = b"".join(_flexible_row(*topic) for topic in topics.items())
    head = _pack_flexible_head(len(body) + 11, correlation_id, 0, 0)
    return head + bytes((len(topics) + 1,)) + body + b"\0"


def _usual_topics(
    view: memoryview, at: int, end: int, is_flexible: bool
) -> dict[str, tuple[int, ...]] | None:
    """The partitions by topic; None for any other request."""
    count, at = short_count(view, at, flexible=is_flexible)
    topics: dict[str, tuple[int, ...]] = {}
    for _ in range(count):
        name, at = short_text(view, at, flexible=is_flexible)
        size, at = short_count(view, at, flexible=is_flexible)
        if not name or not size:
            return None
        topics[name] = struct.unpack_from(f">{size}i", view, at)
        at += 4 * size
        if is_flexible:
            if view[at]:
                return None
            at += 1
    is_whole = is_end(view, at, end, flexible=is_flexible)
    return topics if topics and len(topics) == count and is_whole else None


def _known(peer: Peer, topics: Mapping[str, tuple[int, ...]]) -> dict[Partition, UUID] | None:
    """The partitions with their topics' ids, if all exist and the rights are remembered."""
    view, found = peer.services.view, {}
    for name, indexes in topics.items():
        known = view.topics.get(name)
        if (
            known is None
            or name in INTERNAL_TOPICS
            or not peer.session.has_allowed(Operation.WRITE, ResourceType.TOPIC, name)
            or len(set(indexes)) < len(indexes)
        ):
            return None
        for index in indexes:
            if view.partition(name, index) is None:
                return None
            found[name, index] = known.topic_id
    return found


def _classic_row(name: str, indexes: tuple[int, ...]) -> bytes:
    text = name.encode()
    codes = b"".join(index.to_bytes(4, "big") + b"\0\0" for index in indexes)
    return len(text).to_bytes(2, "big") + text + len(indexes).to_bytes(4, "big") + codes


def _flexible_row(name: str, indexes: tuple[int, ...]) -> bytes:
    text = name.encode()
    codes = b"".join(index.to_bytes(4, "big") + b"\0\0\0" for index in indexes)
    return bytes((len(text) + 1,)) + text + bytes((len(indexes) + 1,)) + codes + b"\0"


@handles(
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    begins_at_once=True,
    at_once=add_at_once,
)
async def add_partitions_to_txn(
    ctx: RequestContext, request: AddPartitionsToTxnRequest
) -> AddPartitionsToTxnResponse:
    """One code per partition."""
    if ctx.api_version < FROM_BROKERS_SINCE:
        codes = await _of_client(ctx, _only_transaction(request))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_rows(codes))
    try:
        require_on_cluster(ctx, Operation.CLUSTER_ACTION)
    except KafkaError as error:
        return AddPartitionsToTxnResponse(error_code=error.code)
    asked = request.transactions
    answers = (
        [await _of_broker(ctx, asked[0])]
        if len(asked) == 1
        else await asyncio.gather(*(_of_broker(ctx, row) for row in asked))
    )
    return AddPartitionsToTxnResponse(
        results_by_transaction=tuple(
            AddPartitionsToTxnResult(
                transactional_id=row.transactional_id, topic_results=_rows(codes)
            )
            for row, codes in zip(asked, answers, strict=True)
        )
    )


def _only_transaction(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


async def _of_client(ctx: RequestContext, asked: AddPartitionsToTxnTransaction) -> Codes:
    try:
        require_transactional_id(ctx, Operation.WRITE, asked.transactional_id)
    except KafkaError as error:
        return dict.fromkeys(_partitions(asked.topics), error.code)
    faults = _faults(ctx, asked.topics)
    if faults:
        return _not_attempted(asked.topics, faults)
    return await _run(ctx, asked)


def _faults(ctx: RequestContext, topics: tuple[AddPartitionsToTxnTopic, ...]) -> Codes:
    """Partitions that the client may not write to, or that are unknown: rights first."""
    faults: dict[Partition, ErrorCode] = {}
    for topic in topics:
        may_write = topic.name not in INTERNAL_TOPICS and may_on_topic(
            ctx, Operation.WRITE, topic.name
        )
        for index in topic.partitions:
            if not may_write:
                faults[topic.name, index] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif ctx.broker.view.partition(topic.name, index) is None:
                faults[topic.name, index] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return faults


async def _of_broker(ctx: RequestContext, asked: AddPartitionsToTxnTransaction) -> Codes:
    """The leader names its topic's id: this broker may not know a new topic yet."""
    faults = {
        (topic.name, index): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for topic in asked.topics
        if topic.topic_id == NO_TOPIC_ID
        for index in topic.partitions
        if ctx.broker.view.partition(topic.name, index) is None
    }
    return _not_attempted(asked.topics, faults) if faults else await _run(ctx, asked)


def _not_attempted(topics: tuple[AddPartitionsToTxnTopic, ...], faults: Codes) -> Codes:
    return {p: faults.get(p, ErrorCode.OPERATION_NOT_ATTEMPTED) for p in _partitions(topics)}


async def _run(ctx: RequestContext, asked: AddPartitionsToTxnTransaction) -> Codes:
    service = ctx.broker.transactions
    producer = ProducerIdentity(asked.producer_id, asked.producer_epoch)
    partitions = {
        (topic.name, index): _topic_id(ctx, topic)
        for topic in asked.topics
        for index in topic.partitions
    }
    is_client = ctx.api_version < FROM_BROKERS_SINCE
    try:
        if is_client:  # the leaders that participants of epochs write to enlist them
            check_transactional_id(asked.transactional_id)
        else:
            check_storable(asked.transactional_id)
        if asked.verify_only:
            return await service.verify_partitions(
                asked.transactional_id, producer, frozenset(partitions), asked.coordinator_epoch
            )
        await service.add_partitions(
            asked.transactional_id,
            producer,
            partitions,
            connection=ctx.session.number if is_client else None,
        )
    except KafkaError as error:
        return dict.fromkeys(partitions, client_code(error.code, ctx.api_version))
    return dict.fromkeys(partitions, ErrorCode.NONE)


def _topic_id(ctx: RequestContext, topic: AddPartitionsToTxnTopic) -> UUID:
    known = ctx.broker.view.topics.get(topic.name)
    if topic.topic_id != NO_TOPIC_ID or known is None:
        return topic.topic_id
    return known.topic_id


def _partitions(topics: tuple[AddPartitionsToTxnTopic, ...]) -> list[Partition]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _rows(codes: Codes) -> tuple[AddPartitionsToTxnTopicResult, ...]:
    by_topic: dict[str, list[AddPartitionsToTxnPartitionResult]] = {}
    for (topic, index), code in codes.items():
        row = AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
        by_topic.setdefault(topic, []).append(row)
    return tuple(
        AddPartitionsToTxnTopicResult(name=topic, results_by_partition=tuple(rows))
        for topic, rows in by_topic.items()
    )
