"""Produce: struct parsing in place, record bytes appended from the receive buffer (no codec).

Versions 3 to 13; 0 to 2 are advertised but refused (KAFKA-18659). The dataclasses of
`headwater.wire.apis.k00_produce` test this file, and build the replies that carry an error.
acks=all waits in the purgatory until the high watermark has passed (`Partition.outcome`).
"""

from __future__ import annotations

from collections.abc import Sequence

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.records.batch import codec_of
from headwater.topic_names import INTERNAL_TOPICS
from headwater.wire.apis.k00_produce import ProduceRequest, ProduceResponse
from headwater_broker.api.leadership_confirmation import confirm
from headwater_broker.api.produce.rejected_batches import RefusedBatches, is_new_here
from headwater_broker.api.produce.request_codec import (
    ProduceFrame,
    SingleFrame,
    TopicEntries,
    parse_flexible,
    parse_plain,
    parse_single,
    parse_single_flexible,
)
from headwater_broker.api.produce.response_codec import (
    Row,
    encode_rows,
    encode_single,
    with_throttle_time,
)
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.registry import handles_raw
from headwater_broker.api.replies import Answer, CloseConnectionError, ParkedReply
from headwater_broker.log.record_validation import RecordValidationError
from headwater_broker.quota.client_quotas import RequestQuota
from headwater_broker.replica.delayed_operations import DelayedProduce, any_pending
from headwater_broker.replica.partition import Partition

ACKS_ALL = -1
ACKS_NONE = 0
ACKS_LEADER = 1
FLEXIBLE = 9
ZSTD_SINCE = 7
ZSTD = 4

_WRITE = Operation.WRITE
_TOPIC = ResourceType.TOPIC


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
    """Append every partition's batch, then answer, or park until the in-sync replicas have it.

    `quota` withholds nothing here: what came is appended, and the client is throttled afterwards.
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
    """As `_produce_all`, which it leaves to whatever is not plain, at two thirds of the price."""
    transactional_id, field, key, index, start, end, acks, timeout_ms = single
    services = peer.services
    name = key if isinstance(key, str) else services.replicas.topic_ids.get(key, "")
    partition = services.replicas.partitions.get((name, index))
    if (
        partition is None
        or transactional_id is not None
        or not ACKS_ALL <= acks <= ACKS_LEADER
        or peer.refused is not None
        or name in INTERNAL_TOPICS
        or not peer.session.allows(_WRITE, _TOPIC, name)
    ):
        topics: list[TopicEntries] = [(field, key, [(index, start, end)])]
        frame = (transactional_id, acks, timeout_ms, topics)
        return _produce_all(peer, view, version, correlation_id, frame)
    now_ms = services.clock.now_ms()
    try:
        result = partition.append(view[start:end], acks, now_ms)
    except KafkaError as error:
        row = Row(field, key, name, index)
        _refused(peer, row, partition, error, view[start:end], now_ms)
        return _answer(peer, version, correlation_id, acks, timeout_ms, [row])
    base, last, time_ms, log_start, _ = result
    meter = services.meters.topics.get(name) or services.meters.topic(name)
    meter.bytes_in += end - start
    meter.records_in += last - base + 1
    if acks == ACKS_LEADER or (acks and partition.high_watermark > last):
        return encode_single(version, correlation_id, field, index, base, time_ms, log_start)
    row = Row(field, key, name, index)
    row.take(partition, result)
    return _answer(peer, version, correlation_id, acks, timeout_ms, [row])


def _produce_all(
    peer: Peer, view: memoryview, version: int, correlation_id: int, frame: ProduceFrame
) -> Answer:
    transactional_id, acks, timeout_ms, topics = frame
    services = peer.services
    rows: list[Row] = []
    now_ms = services.clock.now_ms()
    refusal = _refusal(transactional_id, acks)
    for field, key, entries in topics:
        name = services.replicas.topic_ids.get(key, "") if isinstance(key, bytes) else key
        for index, start, stop in entries:
            partition = services.replicas.partitions.get((name, index))
            if (
                partition is None
                or refusal is not None
                or start < 0
                or name in INTERNAL_TOPICS
                or (version < ZSTD_SINCE and codec_of(view, start) == ZSTD)
                or not peer.session.allows(_WRITE, _TOPIC, name)
            ):
                row = Row(field, key, name, index)
                row.fail(*(refusal or _why_not(peer, row, partition, start)))
                if start >= 0:
                    _remember(peer, row, view[start:stop], now_ms)
                if partition is not None:
                    services.meters.rejected(name, max(stop - start, 0))
                rows.append(row)
                continue
            try:
                if peer.refused is not None:
                    _check_before(peer, key, index, view[start:stop], partition, now_ms)
                result = partition.append(view[start:stop], acks, now_ms)
            except KafkaError as error:
                row = Row(field, key, name, index)
                _refused(peer, row, partition, error, view[start:stop], now_ms)
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
    return _answer(peer, version, correlation_id, acks, timeout_ms, rows)


def _refused(
    peer: Peer, row: Row, partition: Partition, error: KafkaError, batch: memoryview, now_ms: int
) -> None:
    """The partition did not take the batch."""
    row.leader_epoch = partition.leader_epoch
    row.fail(error.code, error.detail)
    if isinstance(error, RecordValidationError):
        row.record_errors = error.record_errors
    peer.services.meters.rejected(row.name, len(batch))
    _look_back(peer, row, partition, batch, now_ms)


def _refusal(transactional_id: str | None, acks: int) -> tuple[ErrorCode, str] | None:
    """Why the whole request is refused, if it is."""
    if not ACKS_ALL <= acks <= ACKS_LEADER:
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}; use -1 (all), 0 or 1"
    if transactional_id is not None:
        # No coordinator hands out transactional ids here, so nothing valid can carry one.
        return ErrorCode.INVALID_TXN_STATE, f"no transaction is open for {transactional_id!r}"
    return None


def _why_not(
    peer: Peer, row: Row, partition: Partition | None, start: int
) -> tuple[ErrorCode, str]:
    services, name, index = peer.services, row.name, row.index
    if isinstance(row.key, bytes) and not name:
        return ErrorCode.UNKNOWN_TOPIC_ID, f"topic id {row.key.hex()} is not known here"
    if not peer.session.allows(_WRITE, _TOPIC, name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"no WRITE on topic {name}"
    if partition is None:
        error = services.absent(name, index)
        return error.code, error.detail
    if name in INTERNAL_TOPICS:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by coordinators only"
    if start < 0:
        return ErrorCode.INVALID_RECORD, "no records (null)"
    return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later"


def _look_back(peer: Peer, row: Row, partition: Partition, batch: memoryview, now_ms: int) -> None:
    """What a batch lacks before it may be with a former leader, which still has to answer."""
    role, now_s = partition.leader_state, peer.services.clock.monotonic()
    if (
        row.is_out_of_order
        and role is not None
        and is_new_here(role, batch, partition.log.producers, now_s)
    ):
        why = f"{row.message}; the former leader may have what is missing"
        row.fail(ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
    _remember(peer, row, batch, now_ms)


def _remember(peer: Peer, row: Row, batch: memoryview, now_ms: int) -> None:
    """What was refused and will be sent again: others may follow it (`rejected_batches`)."""
    if row.code is not None and row.code.retriable:
        refused = peer.refused or RefusedBatches()
        refused.note(row.key, row.index, batch, row.code, now_ms)
        peer.refused = refused if refused else None


def _check_before(
    peer: Peer,
    key: str | bytes,
    index: int,
    batch: memoryview,
    partition: Partition,
    now_ms: int,
) -> None:
    if peer.refused:
        code = peer.refused.before(key, index, batch, partition.log.producers, now_ms)
        if code is not None:
            raise KafkaError(code, f"{partition!r}: a batch before it was refused, send both again")
    if not peer.refused:
        peer.refused = None


def _answer(
    peer: Peer, version: int, correlation_id: int, acks: int, timeout_ms: int, rows: list[Row]
) -> Answer:
    if acks == ACKS_NONE:
        failed = next((row for row in rows if row.code), None)
        if failed is not None and failed.code is not None:
            # The only way to tell a client that expects no reply: it refreshes its metadata.
            raise CloseConnectionError(
                f"acks=0 produce to {failed.name}-{failed.index} failed: "
                f"{failed.code.name} {failed.message}"
            )
        return None
    if any(row.is_out_of_order for row in rows):
        reply = peer.park()
        peer.spawn(_confirmed(peer, reply, version, correlation_id, acks, timeout_ms, rows))
        return reply
    return _settle(peer, None, version, correlation_id, acks, timeout_ms, rows)


def _settle(
    peer: Peer,
    reply: ParkedReply | None,
    version: int,
    correlation_id: int,
    acks: int,
    timeout_ms: int,
    rows: list[Row],
) -> Answer:
    """The answer, or the reply that gets it later: `reply`, where one is parked already."""
    services = peer.services
    if acks == ACKS_ALL and any_pending(rows):
        waiting = ProduceReply(peer, reply or peer.park(), version, correlation_id, rows)
        waiting.start(timeout_ms)
        return waiting.reply
    answer = encode_rows(services, peer.session.listener, version, correlation_id, rows)
    if reply is None:
        return answer
    reply.resolve([answer])
    return reply


async def _confirmed(
    peer: Peer,
    reply: ParkedReply,
    version: int,
    correlation_id: int,
    acks: int,
    timeout_ms: int,
    rows: list[Row],
) -> None:
    """Answer as `_answer` does, once it is known whether this broker still leads."""
    gone: list[bool] = []
    reply.on_gone = lambda: gone.append(True)
    await confirm(peer.services, [row.unconfirmed() for row in rows if row.is_out_of_order])
    if not gone:
        _settle(peer, reply, version, correlation_id, acks, timeout_ms, rows)


class ProduceReply(DelayedProduce[Row]):
    """The reply of an acks=all produce that waits for the high watermarks of its partitions."""

    __slots__ = ("_correlation_id", "_peer", "_version", "reply")

    def __init__(
        self, peer: Peer, reply: ParkedReply, version: int, correlation_id: int, rows: list[Row]
    ) -> None:
        super().__init__(peer.services.purgatories, rows)
        reply.on_gone = self.cancel  # the records stay; nobody waits for their replication
        self.reply = reply
        self._peer = peer
        self._version = version
        self._correlation_id = correlation_id

    def on_failure(self, error: Exception) -> None:
        """Close the connection: the producer sends again what has no reply."""
        self._peer.close(f"internal error: {error!r}")

    def completed(self, rows: Sequence[Row]) -> None:
        """Send the reply; a row without a code has timed out."""
        peer = self._peer
        for row in rows:
            if row.code is None:
                row.fail(ErrorCode.REQUEST_TIMED_OUT, "not replicated to all in-sync replicas")
            elif row.code and not row.message:
                row.fail(row.code, "after the append")
        row = rows[0]
        if len(rows) == 1 and not row.code:
            data = encode_single(
                self._version,
                self._correlation_id,
                row.field,
                row.index,
                row.base_offset,
                row.append_time_ms,
                row.log_start_offset,
            )
        else:
            data = encode_rows(
                peer.services, peer.session.listener, self._version, self._correlation_id, rows
            )
        self.reply.resolve([data])
