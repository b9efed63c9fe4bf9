"""The batches that a shard's decisions of one turn of the loop are appended in."""

from __future__ import annotations

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import HEADER_BYTES
from headwater.records.builder import BatchBuilder, build_single
from headwater_broker.coordinator.common.appender import AppendState
from headwater_broker.coordinator.common.shard import Decision, Producer

BATCH_BYTES = 256 * 1024
"""A batch of several decisions grows up to this; a larger decision has a batch of its own."""


class TurnBatches:
    """Collects decisions. Each is in one batch; small ones of no producer share a batch."""

    __slots__ = ("_base_offset", "_builder", "_next_offset", "_producer", "_sealed")

    def __init__(self) -> None:
        self._sealed = bytearray()
        self._builder = BatchBuilder()
        self._producer: Producer | None = None
        """Of the batch in `_builder`."""
        self._base_offset = self._next_offset = -1

    @property
    def is_empty(self) -> bool:
        """True when nothing is to be appended."""
        return not self._sealed and not self._builder.count

    def add(self, decision: Decision, state: AppendState, now_ms: int) -> int:
        """Add a decision's records; the offset that the first of them will have.

        Raises RECORD_LIST_TOO_LARGE, with nothing added, for a decision that is larger than a batch
        may be.
        """
        size_max, builder = HEADER_BYTES + decision.size_max_bytes, self._builder
        if size_max > state.batch_max_bytes:
            self._check_size(decision, state.batch_max_bytes, now_ms)
        if builder.count:
            limit = min(BATCH_BYTES, state.batch_max_bytes)
            is_transactional = decision.producer is not None or self._producer is not None
            if is_transactional or builder.size_bytes + size_max - HEADER_BYTES > limit:
                self._seal()
                builder = self._builder
        elif not self._sealed:
            self._base_offset = self._next_offset = state.log_end_offset
        self._producer = decision.producer
        _add_records(builder, decision, now_ms)
        first = self._next_offset
        self._next_offset += len(decision.records)
        return first

    def take(self) -> tuple[int, bytearray]:
        """(the offset that the first batch shall have, all batches); empty afterwards."""
        self._seal()
        batches, self._sealed = self._sealed, bytearray()
        return self._base_offset, batches

    def _seal(self) -> None:
        builder, producer = self._builder, self._producer
        if not builder.count:
            return
        self._builder, self._producer = BatchBuilder(), None
        batch = _built(builder, producer)
        if self._sealed:
            self._sealed += batch
        else:
            self._sealed = batch

    @staticmethod
    def _check_size(decision: Decision, batch_max_bytes: int, now_ms: int) -> None:
        builder = BatchBuilder()
        _add_records(builder, decision, now_ms)
        if builder.size_bytes > batch_max_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(decision.records)} records that belong together take {builder.size_bytes} "
                f"bytes, a batch of the topic at most {batch_max_bytes} (max.message.bytes)",
            )


def batch_of(decision: Decision, now_ms: int) -> bytearray:
    """The batch of one decision."""
    if len(decision.records) == 1:  # as most often
        [(key, value)] = decision.records
        if decision.producer is None:
            return build_single(now_ms, key, value)
        return build_single(now_ms, key, value, *decision.producer, transactional=True)
    builder = BatchBuilder()
    _add_records(builder, decision, now_ms)
    return _built(builder, decision.producer)


def _add_records(builder: BatchBuilder, decision: Decision, now_ms: int) -> None:
    for key, value in decision.records:
        builder.append(now_ms, key, value)


def _built(builder: BatchBuilder, producer: Producer | None) -> bytearray:
    if producer is None:
        return builder.build()
    producer_id, producer_epoch = producer
    return builder.build(producer_id=producer_id, producer_epoch=producer_epoch, transactional=True)
