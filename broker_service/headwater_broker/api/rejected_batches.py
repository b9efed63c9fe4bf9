"""A batch behind a rejected one of the same producer is rejected too, and not as out of order.

An idempotent producer has up to five requests in flight. When this broker becomes the leader after
it rejected the first one and before it reads the second one, the second one would fail with
OUT_OF_ORDER_SEQUENCE_NUMBER, or be appended if the producer is unknown. Kafka does that. Then
librdkafka bumps its epoch for all partitions and repeats, in the new epoch, batches that a dead
leader may have replicated: the records are duplicated. With the error of the first batch the client
repeats both batches in order. Pure.

The same applies to a batch whose predecessors are in flight to the former leader, which can no
longer replicate them and may not know that yet. A new leader that has appended nothing of this
producer refuses its batches for a while, so that the client gets the former leader's errors first.
"""

from __future__ import annotations

from typing import NamedTuple

from headwater.errors import ErrorCode
from headwater.records.batch import HEADER_BYTES, BatchHeader, read_header
from headwater_broker.log.producer_state_manager import (
    BATCHES_KEPT,
    SEQUENCE_MAX,
    Producers,
    increment_sequence,
)
from headwater_broker.replica.leader_state import LeaderState

STALE_MS = 120_000
"""A client may receive a rejection this late, and then send the batches behind it: replies are in
order, and an earlier one may wait for replicas for the client's request.timeout.ms."""
FORMER_LEADER_S = 30.0
"""By then the former leader has answered, or the client gave up (request.timeout.ms)."""
PLACES_MAX = 1000
"""Limit of remembered (producer, partition) pairs per connection; the oldest are dropped."""

_Place = tuple[str | bytes, int, int, int]
"""Topic (name or id), partition, producer id, producer epoch."""


class _Rejected(NamedTuple):
    sequence: int
    code: ErrorCode
    at_ms: int
    followers: int
    """The number of batches that may still be in flight behind it."""

    def is_followed_by(self, sequence: int, now_ms: int) -> bool:
        return _is_after(sequence, self.sequence) and now_ms - self.at_ms <= STALE_MS


def is_new_here(role: LeaderState, batch: memoryview, producers: Producers, now_s: float) -> bool:
    """True when this leadership is young and has appended no batch of this producer: earlier
    batches may be in flight to the former leader. `now_s`: monotonic.
    """
    header = _idempotent(batch)
    if header is None or role.epoch_start == 0:
        return False
    entry = producers.entries.get(header.producer_id)
    is_young = role.began is not None and now_s - role.began < FORMER_LEADER_S
    return is_young and (entry is None or entry.last_offset < role.epoch_start)


class RejectedBatches:
    """The rejected batches of one connection that its client will send again."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[_Place, _Rejected] = {}

    def __len__(self) -> int:
        return len(self._places)

    def note(
        self, topic: str | bytes, partition: int, batch: memoryview, code: ErrorCode, now_ms: int
    ) -> None:
        """Record that `batch` is rejected with a retriable error."""
        header = _idempotent(batch)
        if header is None:
            return
        place = (topic, partition, header.producer_id, header.producer_epoch)
        sequence = header.base_sequence
        known = self._places.get(place)
        if known is not None:
            del self._places[place]
            if known.is_followed_by(sequence, now_ms):
                if known.followers > 1:
                    self._places[place] = known._replace(followers=known.followers - 1)
                return
        if len(self._places) == PLACES_MAX:
            del self._places[next(iter(self._places))]
        self._places[place] = _Rejected(sequence, code, now_ms, BATCHES_KEPT - 1)

    def before(
        self,
        topic: str | bytes,
        partition: int,
        batch: memoryview,
        producers: Producers,
        now_ms: int,
    ) -> ErrorCode | None:
        """The error of the rejected batch before `batch`, while the log lacks that one.

        The caller rejects `batch` with this error, and records that too.
        """
        header = _idempotent(batch)
        if header is None:
            return None
        place = (topic, partition, header.producer_id, header.producer_epoch)
        known = self._places.get(place)
        if known is None:
            return None
        if _leaves_gap(producers, header) and known.is_followed_by(header.base_sequence, now_ms):
            return known.code
        del self._places[place]
        return None


def _idempotent(batch: memoryview) -> BatchHeader | None:
    """The header of a batch with a producer id; None for others."""
    header = read_header(batch) if len(batch) >= HEADER_BYTES else None
    return None if header is None or header.producer_id < 0 else header


def _leaves_gap(producers: Producers, header: BatchHeader) -> bool:
    entry = producers.entries.get(header.producer_id)
    if entry is None or entry.epoch != header.producer_epoch or not entry.batches:
        return True
    return _is_after(header.base_sequence, increment_sequence(entry.last_sequence, 1))


def _is_after(sequence: int, other: int) -> bool:
    """Compare sequences, which wrap around, by the shorter distance."""
    return 0 < (sequence - other) & SEQUENCE_MAX <= SEQUENCE_MAX // 2
