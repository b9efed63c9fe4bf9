"""Produce requests with a transactional id: rights, verification, and the response after both.

A batch whose transaction is open on the partition is appended at once. Any other transactional
batch waits until its coordinator has answered (`replica.transaction_verification`), and the request
with it. As in Kafka a batch of such a request may also be an ordinary one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation, ResourceType
from headwater.records.batch import (
    AT_COMPRESSION,
    AT_PRODUCER_ID,
    HEADER_BYTES,
    NO_PRODUCER_ID,
    TRANSACTIONAL_MASK,
)
from headwater.topic_names import INTERNAL_TOPICS
from headwater.wire.sink_names import coordinator_key
from headwater_broker.api.produce.answer import ACKS_ALL, ACKS_NONE, answer, failure
from headwater_broker.api.produce.batch_checks import (
    ZSTD_SINCE,
    check_predecessor,
    reject,
    rejection_of,
    remember_rejected,
)
from headwater_broker.api.produce.request_codec import ProduceFrame
from headwater_broker.api.produce.response_codec import FLEXIBLE, Appended, Row, encode_appended
from headwater_broker.api.raw_connection import Peer
from headwater_broker.api.replies import Answer, ParkedReply
from headwater_broker.log.producer_state_manager import NO_EPOCH, ProducerEntry
from headwater_broker.log.results import AppendOrigin, AppendResult
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.transaction_verification import (
    ADDS_SINCE,
    TransactionGuard,
    is_open,
)

_unpack_producer = struct.Struct(">qh").unpack_from
_unpack_producer_id = struct.Struct(">q").unpack_from
_unpack_batch = struct.Struct(">qhi").unpack_from
"""Producer id, epoch and base sequence."""
_AT_FLAGS = AT_COMPRESSION
"""The low byte of the attributes."""


def may_append_now(
    peer: Peer, transactional_id: str, partition: Partition, view: memoryview, start: int, end: int
) -> bool:
    """True when the batch needs no verification: its transaction is open, or it has none."""
    if end - start < HEADER_BYTES or not view[start + _AT_FLAGS] & TRANSACTIONAL_MASK:
        return True
    producer_id, producer_epoch = _unpack_producer(view, start + AT_PRODUCER_ID)
    return is_open(
        partition.log.producers.entries.get(producer_id), producer_epoch
    ) and peer.session.allows(
        Operation.WRITE, ResourceType.TRANSACTIONAL_ID, coordinator_key(transactional_id)
    )


def producer_ids(view: memoryview, frame: ProduceFrame) -> set[int]:
    """The producer ids of all transactional batches."""
    return {
        _unpack_producer_id(view, start + AT_PRODUCER_ID)[0]
        for _, _, entries in frame[3]
        for _, start, stop in entries
        if stop - start >= HEADER_BYTES and view[start + _AT_FLAGS] & TRANSACTIONAL_MASK
    }


_UsualBatch = tuple[bytes, str | bytes, str, int, Partition, memoryview]
"""The encoded topic and its key, its name, the partition's index, the partition, the batch."""


class _UsualBatches:
    """The batches of a request, and what its coordinator is to be asked."""

    __slots__ = ("asked", "batches", "coordinator_epoch", "producer")

    def __init__(self, producer: tuple[int, int]) -> None:
        self.producer = producer
        """Producer id and epoch of all batches."""
        self.batches: list[_UsualBatch] = []
        self.asked: dict[tuple[str, int], Partition] = {}
        """Partitions on which the transaction is not open yet."""
        self.coordinator_epoch = NO_EPOCH
        """The latest one that a marker of the producer has shown."""

    def ask(
        self, place: tuple[str, int], partition: Partition, entry: ProducerEntry | None
    ) -> None:
        """Add a partition, with what its log knows of the producer."""
        self.asked[place] = partition
        if entry is not None and entry.coordinator_epoch > self.coordinator_epoch:
            self.coordinator_epoch = entry.coordinator_epoch


class TransactionalProduce:
    """One Produce request of a transactional producer."""

    __slots__ = (
        "_acks", "_correlation_id", "_encoded", "_guard", "_is_entered", "_is_gone", "_may_write",
        "_peer", "_reply", "_rows", "_timeout_ms", "_transactional_id", "_version", "_waiting",
    )  # fmt: skip

    def __init__(
        self,
        peer: Peer,
        transactional_id: str,
        version: int,
        correlation_id: int,
        acks: int,
        timeout_ms: int,
    ) -> None:
        self._peer = peer
        self._version = version
        self._correlation_id = correlation_id
        self._acks = acks
        self._timeout_ms = timeout_ms
        self._transactional_id = transactional_id
        self._guard: TransactionGuard = peer.services.verifier.guard(transactional_id, version)
        self._may_write: bool | None = None
        """The right to the transactional id; None: not asked for yet, as each denial is audited."""
        self._encoded: bytes | None = None
        """The response, where it is known without its rows."""
        self._rows: list[Row] = []
        self._waiting = 0
        """Batches that wait for their verification."""
        self._reply: ParkedReply | None = None
        self._is_gone = False
        self._is_entered = False
        """True once every batch is appended, rejected or waits, and those of a coordinator on this
        broker have their verification: the response, or the wait for it, is due."""

    def run(
        self, view: memoryview, frame: ProduceFrame, request_error: tuple[ErrorCode, str] | None
    ) -> Answer:
        """Append or queue each batch; the response, or the place of one that waits.

        `request_error`: an error of the whole request that its transaction does not matter for.
        """
        if request_error is None and self._appends_at_once(view, frame):
            return self._answer() if self._encoded is None else self._encoded
        request_error = request_error or self._transaction_error(view, frame)
        try:
            for field, key, entries in frame[3]:
                topic_ids = self._peer.services.replicas.topic_ids
                name = topic_ids.get(key, "") if isinstance(key, bytes) else key
                for index, start, stop in entries:
                    row = Row(field, key, name, index)
                    self._rows.append(row)
                    self._enter(row, view, start, stop, request_error)
        finally:
            self._guard.put()  # an answered question that is left would be waited for again
        self._is_entered = True
        if not self._waiting:
            return self._answer()
        if self._acks == ACKS_NONE:
            return None
        self._reply = self._peer.park()
        self._reply.on_gone = self._gone
        return self._reply

    def _transaction_error(
        self, view: memoryview, frame: ProduceFrame
    ) -> tuple[ErrorCode, str] | None:
        """An error of the whole request; Kafka checks it before anything else."""
        found = producer_ids(view, frame)
        if found and not self._may_write_to_id():
            text = f"no WRITE on transactional id {self._transactional_id!r}"
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text
        if len(found) > 1:
            text = f"transactional records of {len(found)} producer ids in one request"
            return ErrorCode.INVALID_PRODUCER_ID_MAPPING, text
        return None

    def _may_write_to_id(self) -> bool:
        if self._may_write is None:
            self._may_write = self._peer.session.allows(
                Operation.WRITE,
                ResourceType.TRANSACTIONAL_ID,
                coordinator_key(self._transactional_id),
            )
        return self._may_write

    def _appends_at_once(self, view: memoryview, frame: ProduceFrame) -> bool:
        """Append to all partitions, if the coordinator is on this broker and allows them at once:
        nothing comes between its answer and the appends, so no batch has to be kept meanwhile.

        False, and nothing is appended, when anything is unusual: `_enter` then takes each batch
        with all the rules.
        """
        peer = self._peer
        if (
            peer.rejected is not None
            or self._version < ZSTD_SINCE
            or (self._version < ADDS_SINCE and peer.services.appends.lowest)
        ):
            return False
        usual = self._usual_batches(view, frame)
        if usual is None or (
            usual.asked
            and not self._guard.allows_now(*usual.producer, usual.asked, usual.coordinator_epoch)
        ):
            return False
        self._append_usual(usual.batches)
        return True

    def _append_usual(self, batches: Sequence[_UsualBatch]) -> None:
        """Append them. Rows are made for those that are rejected, or not committed yet, and the
        others with them."""
        peer, acks = self._peer, self._acks
        now_ms, meters = peer.services.clock.now_ms(), peer.services.meters
        appended: list[Appended] = []
        outcomes: list[AppendResult | Row] = []
        is_settled = acks != ACKS_NONE and self._version >= FLEXIBLE
        for field, key, name, index, partition, batch in batches:
            try:
                if peer.rejected is not None:
                    check_predecessor(peer, key, index, batch, partition, now_ms)
                result = partition.append(batch, acks, now_ms, AppendOrigin.TRANSACTION)
            except KafkaError as error:
                self._note_lowest(partition, batch)
                row = Row(field, key, name, index)
                reject(peer, row, partition, error, batch, now_ms)
                outcomes.append(row)
                is_settled = False
                continue
            base, last, time_ms, log_start, _ = result
            outcomes.append(result)
            appended.append((field, index, base, time_ms, log_start))
            if acks == ACKS_ALL and (partition.high_watermark <= last or partition.cannot_commit):
                is_settled = False
            meter = meters.topics.get(name) or meters.topic(name)
            meter.bytes_in += len(batch)
            meter.records_in += last - base + 1
        if is_settled:
            self._encoded = encode_appended(self._correlation_id, appended)
            return
        for (field, key, name, index, partition, _), outcome in zip(batches, outcomes, strict=True):
            if isinstance(outcome, Row):
                self._rows.append(outcome)
                continue
            row = Row(field, key, name, index)
            row.take(partition, outcome)
            self._rows.append(row)

    def _note_lowest(self, partition: Partition, batch: memoryview) -> None:
        """The producer's first batch was rejected: no later one may take its place."""
        producer_id, epoch, sequence = _unpack_batch(batch, AT_PRODUCER_ID)
        if self._version < ADDS_SINCE and producer_id not in partition.log.producers.entries:
            self._peer.services.appends.lowest.note(partition, producer_id, epoch, sequence)

    def _usual_batches(self, view: memoryview, frame: ProduceFrame) -> _UsualBatches | None:
        """The batches of a request that has nothing but the next batches of one transaction."""
        services, allows = self._peer.services, self._peer.session.allows
        hosted, appends = services.replicas.partitions, services.appends
        has_waiting = appends.has_any_waiting
        usual: _UsualBatches | None = None
        for field, key, entries in frame[3]:
            name = services.replicas.topic_ids.get(key, "") if isinstance(key, bytes) else key
            if not name or name in INTERNAL_TOPICS:
                return None
            for index, start, stop in entries:
                place = name, index
                partition = hosted.get(place)
                if (
                    partition is None
                    or start < 0
                    or stop - start < HEADER_BYTES
                    or not view[start + _AT_FLAGS] & TRANSACTIONAL_MASK
                ):
                    return None
                producer_id, epoch, sequence = _unpack_batch(view, start + AT_PRODUCER_ID)
                if usual is None:
                    if not self._may_write_to_id():
                        return None
                    usual = _UsualBatches((producer_id, epoch))
                if (
                    (producer_id, epoch) != usual.producer
                    or producer_id == NO_PRODUCER_ID
                    or (has_waiting and appends.has_waiting(partition, producer_id))
                ):
                    return None
                entry = partition.log.producers.entries.get(producer_id)
                if not is_open(entry, epoch):
                    if sequence if entry is None else epoch < entry.epoch:
                        return None
                    usual.ask(place, partition, entry)
                usual.batches.append((field, key, name, index, partition, view[start:stop]))
            if not allows(Operation.WRITE, ResourceType.TOPIC, name):
                return None
        return usual

    def _enter(
        self,
        row: Row,
        view: memoryview,
        start: int,
        stop: int,
        request_error: tuple[ErrorCode, str] | None,
    ) -> None:
        peer, services = self._peer, self._peer.services
        now_ms = services.clock.now_ms()
        partition = services.replicas.partitions.get((row.name, row.index))
        reason = request_error or rejection_of(peer, row, partition, view, start, self._version)
        if reason is not None:
            row.fail(*reason)
            if start >= 0:
                remember_rejected(peer, row, view[start:stop], now_ms)
            if partition is not None:
                services.meters.rejected(row.name, max(stop - start, 0))
            return
        assert partition is not None  # or there was a reason
        batch = view[start:stop]
        try:
            if self._peer.rejected is not None:
                check_predecessor(self._peer, row.key, row.index, batch, partition, now_ms)
            result = self._append(row, partition, batch)
        except KafkaError as error:
            reject(self._peer, row, partition, error, batch, now_ms)
            return
        if result is not None:
            self._appended(row, partition, result, stop - start)

    def _append(self, row: Row, partition: Partition, batch: memoryview) -> AppendResult | None:
        """The result, or None when the batch waits. Raises KafkaError."""
        size = len(batch)
        is_transactional = size >= HEADER_BYTES and batch[_AT_FLAGS] & TRANSACTIONAL_MASK
        if not is_transactional or _unpack_producer_id(batch, AT_PRODUCER_ID)[0] == NO_PRODUCER_ID:
            now_ms = self._peer.services.clock.now_ms()
            return partition.append(batch, self._acks, now_ms)
        waiting: list[memoryview] = []

        def deliver(outcome: AppendResult | KafkaError) -> None:
            self._delivered(row, partition, outcome, waiting[0])

        result = self._peer.services.appends.append_guarded(
            partition,
            batch,
            self._guard,
            deliver,
            acks=self._acks,
            origin=AppendOrigin.TRANSACTION,
        )
        if result is None:
            waiting.append(memoryview(bytes(batch)))  # the receive buffer is used again
            self._waiting += 1
        return result

    def _appended(self, row: Row, partition: Partition, result: AppendResult, size: int) -> None:
        row.take(partition, result)
        meters = self._peer.services.meters
        meter = meters.topics.get(row.name) or meters.topic(row.name)
        meter.bytes_in += size
        meter.records_in += result.last_offset - result.base_offset + 1

    def _delivered(
        self, row: Row, partition: Partition, outcome: AppendResult | KafkaError, batch: memoryview
    ) -> None:
        if isinstance(outcome, KafkaError):
            now_ms = self._peer.services.clock.now_ms()
            reject(self._peer, row, partition, outcome, batch, now_ms)
        else:
            self._appended(row, partition, outcome, len(batch))
        self._waiting -= 1
        if self._waiting or self._is_gone or not self._is_entered:
            return
        if self._reply is not None:
            self._answer()
        elif (text := failure(self._rows)) is not None:
            self._peer.close(text)

    def _answer(self) -> Answer:
        return answer(
            self._peer,
            self._version,
            self._correlation_id,
            self._acks,
            self._timeout_ms,
            self._rows,
            self._reply,
        )

    def _gone(self) -> None:
        self._is_gone = True
