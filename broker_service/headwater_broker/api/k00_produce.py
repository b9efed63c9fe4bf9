"""Produce: parses requests in place and appends batches from the receive buffer, without a codec.

Versions 3 to 13; 0 to 2 are advertised and rejected (KAFKA-18659). The dataclasses of
`headwater.wire.apis.k00_produce` are the oracle of this module's tests, and encode responses with
errors. A request with acks=all waits in the purgatory for the high watermark (`Partition.outcome`).
"""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.records.batch import codec_of
from headwater.topic_names import INTERNAL_TOPICS
from headwater.wire.apis.k00_produce import ProduceRequest, ProduceResponse
from headwater_broker.api.produce.answer import ACKS_ALL, answer
from headwater_broker.api.produce.batch_checks import (
    ZSTD,
    ZSTD_SINCE,
    check_predecessor,
    reject,
    rejection,
    remember_rejected,
)
from headwater_broker.api.produce.request_codec import (
    ProduceFrame,
    SingleFrame,
    TopicEntries,
    parse_flexible,
    parse_plain,
    parse_single,
    parse_single_flexible,
)
from headwater_broker.api.produce.response_codec import Row, encode_single, with_throttle_time
from headwater_broker.api.produce.transactional import TransactionalProduce, may_append_now
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.registry import handles_raw
from headwater_broker.api.replies import Answer
from headwater_broker.log.results import AppendOrigin
from headwater_broker.quota.client_quotas import RequestQuota

ACKS_LEADER = 1
FLEXIBLE = 9

_WRITE = Operation.WRITE
_TOPIC = ResourceType.TOPIC
_CLIENT = AppendOrigin.CLIENT
_TRANSACTION = AppendOrigin.TRANSACTION


@handles_raw(
    ProduceRequest,
    ProduceResponse,
    versions=(3, 13),
    advertised_low=0,
    with_throttle_time=with_throttle_time,
)
def produce(
    peer: Peer, view: memoryview, at: int, end: int, version: int, correlation_id: int,
    quota: RequestQuota | None = None,
) -> Answer:  # fmt: skip
    """Append the batch of each partition; respond, or park until the in-sync replicas have them.

    `quota` does not delay appends: the client is throttled after the response.
    """
    if version >= FLEXIBLE:
        single = parse_single_flexible(view, at, end, version)
    else:
        single = parse_single(view, at, end) if version >= ZSTD_SINCE else None
    if single is not None:
        return _produce_single(peer, view, version, correlation_id, single)
    parse = parse_flexible if version >= FLEXIBLE else parse_plain
    view = view[:end]
    frame = parse(view, at, end, version)
    return _produce_all(peer, view, version, correlation_id, frame)


def _produce_single(
    peer: Peer, view: memoryview, version: int, correlation_id: int, single: SingleFrame
) -> Answer:
    """`_produce_all` for one partition, at two thirds of its cost. `_produce_all` does whatever
    needs more than an append."""
    transactional_id, field, key, index, start, end, acks, timeout_ms = single
    services = peer.services
    name = key if isinstance(key, str) else services.replicas.topic_ids.get(key, "")
    partition = services.replicas.partitions.get((name, index))
    if (
        partition is None
        or not ACKS_ALL <= acks <= ACKS_LEADER
        or peer.rejected is not None
        or name in INTERNAL_TOPICS
        or not peer.session.allows(_WRITE, _TOPIC, name)
        or (
            transactional_id is not None
            and not may_append_now(peer, transactional_id, partition, view, start, end)
        )
    ):
        topics: list[TopicEntries] = [(field, key, [(index, start, end)])]
        frame = (transactional_id, acks, timeout_ms, topics)
        return _produce_all(peer, view, version, correlation_id, frame)
    now_ms = services.clock.now_ms()
    origin = _CLIENT if transactional_id is None else _TRANSACTION
    try:
        result = partition.append(view[start:end], acks, now_ms, origin)
    except KafkaError as error:
        row = Row(field, key, name, index)
        reject(peer, row, partition, error, view[start:end], now_ms)
        return answer(peer, version, correlation_id, acks, timeout_ms, [row])
    base, last, time_ms, log_start, _ = result
    meter = services.meters.topics.get(name) or services.meters.topic(name)
    meter.bytes_in += end - start
    meter.records_in += last - base + 1
    if acks == ACKS_LEADER or (acks and partition.high_watermark > last):
        return encode_single(version, correlation_id, field, index, base, time_ms, log_start)
    row = Row(field, key, name, index)
    row.take(partition, result)
    return answer(peer, version, correlation_id, acks, timeout_ms, [row])


def _produce_all(
    peer: Peer, view: memoryview, version: int, correlation_id: int, frame: ProduceFrame
) -> Answer:
    transactional_id, acks, timeout_ms, topics = frame
    services = peer.services
    request_error = _request_error(acks)
    if transactional_id is not None:
        request = TransactionalProduce(
            peer, transactional_id, version, correlation_id, acks, timeout_ms
        )
        return request.run(view, frame, request_error)
    rows: list[Row] = []
    now_ms = services.clock.now_ms()
    for field, key, entries in topics:
        name = services.replicas.topic_ids.get(key, "") if isinstance(key, bytes) else key
        for index, start, stop in entries:
            partition = services.replicas.partitions.get((name, index))
            if (
                partition is None
                or request_error is not None
                or start < 0
                or name in INTERNAL_TOPICS
                or (version < ZSTD_SINCE and codec_of(view, start) == ZSTD)
                or not peer.session.allows(_WRITE, _TOPIC, name)
            ):
                row = Row(field, key, name, index)
                row.fail(*(request_error or rejection(peer, row, partition, start)))
                if start >= 0:
                    remember_rejected(peer, row, view[start:stop], now_ms)
                if partition is not None:
                    services.meters.rejected(name, max(stop - start, 0))
                rows.append(row)
                continue
            try:
                if peer.rejected is not None:
                    check_predecessor(peer, key, index, view[start:stop], partition, now_ms)
                result = partition.append(view[start:stop], acks, now_ms)
            except KafkaError as error:
                row = Row(field, key, name, index)
                reject(peer, row, partition, error, view[start:stop], now_ms)
                rows.append(row)
                continue
            base, last, time_ms, log_start, _ = result
            topic_meter = services.meters.topics.get(name) or services.meters.topic(name)
            topic_meter.bytes_in += stop - start
            topic_meter.records_in += last - base + 1
            is_settled = acks == ACKS_LEADER or (acks and partition.high_watermark > last)
            if is_settled and len(topics) == 1 and len(entries) == 1:
                return encode_single(
                    version, correlation_id, field, index, base, time_ms, log_start
                )
            row = Row(field, key, name, index)
            row.take(partition, result)
            rows.append(row)
    return answer(peer, version, correlation_id, acks, timeout_ms, rows)


def _request_error(acks: int) -> tuple[ErrorCode, str] | None:
    """The error of the whole request; None: none."""
    if not ACKS_ALL <= acks <= ACKS_LEADER:
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}; use -1 (all), 0 or 1"
    return None
