"""A batch behind a refused one of the same producer is refused as well, not called out of order.

An idempotent producer has up to five requests on their way (max.in.flight). When the first finds no
leader here and this broker becomes it before the second is read, the second would be told
OUT_OF_ORDER_SEQUENCE_NUMBER, or be appended where the producer is not known. Kafka does so, and
librdkafka then begins a new epoch for all partitions and sends again, under that epoch, what a dead
leader may have replicated: records are there twice. With the error of the first the client sends
both again, in order. Pure.

The same befalls a batch whose predecessors are still on their way at the former leader, which
cannot have them replicated any more and may not know it yet. A new leader that has appended nothing
of this producer sends the client back for a while, so that it hears from the former one first.
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
"""The client may learn of a refusal, and so send what follows, as late as this: replies keep their
order, and one before it may wait for replicas as long as the client's request.timeout.ms."""
FORMER_LEADER_S = 30.0
"""A former leader has answered by then, or the client has given it up (request.timeout.ms)."""
PLACES_MAX = 1000
"""So many producers and partitions are remembered per connection; the oldest go first."""

_Place = tuple[str | bytes, int, int, int]
"""Topic (name or id), partition, producer id, producer epoch."""


class _Refused(NamedTuple):
    sequence: int
    code: ErrorCode
    at_ms: int
    followers: int
    """So many batches may still have been on their way behind it."""

    def is_followed_by(self, sequence: int, now_ms: int) -> bool:
        return _is_after(sequence, self.sequence) and now_ms - self.at_ms <= STALE_MS


def is_new_here(role: LeaderState, batch: memoryview, producers: Producers, now_s: float) -> bool:
    """Whether this leadership is young and has appended nothing of the batch's producer yet.

    `now_s`: monotonic. What the producer sent before may then be at the former leader.
    """
    header = _idempotent(batch)
    if header is None or role.epoch_start == 0:
        return False
    entry = producers.entries.get(header.producer_id)
    is_young = role.began is not None and now_s - role.began < FORMER_LEADER_S
    return is_young and (entry is None or entry.last_offset < role.epoch_start)


class RefusedBatches:
    """The refused batches of one connection that its client will send again."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[_Place, _Refused] = {}

    def __len__(self) -> int:
        return len(self._places)

    def note(
        self, topic: str | bytes, partition: int, batch: memoryview, code: ErrorCode, now_ms: int
    ) -> None:
        """`batch` was refused with a code after which it is sent again as it is."""
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
        self._places[place] = _Refused(sequence, code, now_ms, BATCHES_KEPT - 1)

    def before(
        self,
        topic: str | bytes,
        partition: int,
        batch: memoryview,
        producers: Producers,
        now_ms: int,
    ) -> ErrorCode | None:
        """Why the batch that `batch` follows was refused, while that one is missing in the log.

        The caller refuses `batch` with that code, and notes that, too.
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
    """Its header; None when it has none, or no producer id."""
    header = read_header(batch) if len(batch) >= HEADER_BYTES else None
    return None if header is None or header.producer_id < 0 else header


def _leaves_gap(producers: Producers, header: BatchHeader) -> bool:
    entry = producers.entries.get(header.producer_id)
    if entry is None or entry.epoch != header.producer_epoch or not entry.batches:
        return True
    return _is_after(header.base_sequence, increment_sequence(entry.last_sequence, 1))


def _is_after(sequence: int, other: int) -> bool:
    """Sequences wrap around: the nearer way counts."""
    return 0 < (sequence - other) & SEQUENCE_MAX <= SEQUENCE_MAX // 2
