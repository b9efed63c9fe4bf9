"""The records that survive a compaction. Pure: batches in, batches out, in the order of offsets.

The last record of each key stays, at its offset; a tombstone stays until its delete horizon; the
last batch of each live producer and of each segment stays at least as an empty batch. Records of
aborted transactions are removed at once. A marker is removed when no batch of its transaction is
left, after a delete horizon of its own (Kafka's Cleaner; KIP-534).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import NamedTuple

from headwater.records.batch import BatchHeader
from headwater.records.filter import emptied, payload_of, rebuild, spans
from headwater_broker.log.producer_snapshots import read_marker
from headwater_broker.log.transaction_index import AbortedTransaction

DIGEST_BYTES = 16
ENTRY_BYTES = 168
"""Memory per key of the map in CPython: digest, offset, and a share of the dict, which may be only
one third full after it has grown."""


class OffsetMap:
    """The last offset of each key among the records below `end`; bounded in bytes (Kafka's
    OffsetMap)."""

    def __init__(self, bytes_max: int) -> None:
        self._keys_max = max(bytes_max // ENTRY_BYTES, 1)
        self._offsets: dict[bytes, int] = {}
        self.end = 0

    def __len__(self) -> int:
        return len(self._offsets)

    def has_room(self, header: BatchHeader) -> bool:
        """Whether a batch fits even when all its keys are new."""
        return len(self._offsets) + header.record_count <= self._keys_max

    def add(self, header: BatchHeader, batch: memoryview, *, is_aborted: bool) -> None:
        """Add the keys of a batch. Records of aborted transactions supersede nothing."""
        if not (is_aborted or header.is_control or header.record_count == 0):
            base, offsets = header.base_offset, self._offsets
            for span in spans(payload_of(batch), header):
                if span.key is not None:
                    offsets[_digest(span.key)] = base + span.offset_delta
        self.end = header.next_offset

    def is_last(self, key: bytes, offset: int) -> bool:
        """Whether no later record of this key was added."""
        return offset >= self._offsets.get(_digest(key), -1)


def _digest(key: bytes) -> bytes:
    return blake2b(key, digest_size=DIGEST_BYTES).digest()


class Producer(NamedTuple):
    """The last write of a live producer."""

    epoch: int
    last_offset: int | None
    """Last offset of its last data batch; None when only its marker is known."""


class Transactions:
    """Transactions with batches in the log, as a pass over it finds them (Kafka's
    CleanedTransactionMetadata)."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._aborted = deque(sorted(aborted, key=lambda entry: entry.first_offset))
        self._open_aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        """Producer id -> its aborted transaction, and whether a batch of it was found."""
        self._with_batches: set[int] = set()
        """Producers with batches of a transaction that was not aborted."""

    def is_aborted(self, header: BatchHeader) -> bool:
        """Record a data batch; whether its transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        known = self._open_aborted.get(header.producer_id)
        if known is None:
            self._with_batches.add(header.producer_id)
            return False
        self._open_aborted[header.producer_id] = (known[0], True)
        return True

    def end(
        self, header: BatchHeader, is_commit: bool | None
    ) -> tuple[bool, AbortedTransaction | None]:
        """Record a control batch: (no batch of its transaction is left, the aborted transaction
        that the transaction index must still have).

        `is_commit` is None for an empty batch, and for a control record that ends no transaction.
        """
        self._begin_up_to(header.last_offset)
        if is_commit is None:
            return header.record_count == 0, None
        producer_id = header.producer_id
        if is_commit:
            is_gone = producer_id not in self._with_batches
            self._with_batches.discard(producer_id)
            return is_gone, None
        aborted, has_batches = self._open_aborted.pop(producer_id, (None, False))
        return not has_batches, aborted if has_batches else None

    def _begin_up_to(self, offset: int) -> None:
        while self._aborted and self._aborted[0].first_offset <= offset:
            entry = self._aborted.popleft()
            self._open_aborted.setdefault(entry.producer_id, (entry, False))


class Outcome(NamedTuple):
    """The result of filtering one batch."""

    batch: memoryview | bytearray | None
    """The batch to write: the given object when it is unchanged, None when it is removed."""
    aborted: AbortedTransaction | None = None
    """An entry for the transaction index of the new segment."""


class CompactionPass:
    """One pass over the batches of a log, from its first segment on."""

    def __init__(
        self,
        latest: OffsetMap,
        transactions: Transactions,
        producers: Mapping[int, Producer],
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._latest = latest
        self._transactions = transactions
        self._producers = producers
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self.records_dropped = 0
        self.tombstones_dropped = 0

    def filter(self, header: BatchHeader, batch: memoryview, *, is_last: bool) -> Outcome:
        """Filter the next batch. `is_last`: it is the last one of its new segment, and must stay,
        as the segment's end offset follows from it."""
        must_stay = is_last or self._is_last_of_producer(header)
        if header.is_control:
            return self._control(header, batch, must_stay)
        is_aborted = self._transactions.is_aborted(header)
        if header.next_offset > self._latest.end:
            return Outcome(batch)
        return Outcome(self._data(header, batch, is_aborted, must_stay))

    def _control(self, header: BatchHeader, batch: memoryview, must_stay: bool) -> Outcome:
        marker = read_marker(batch, header)
        is_commit = None if marker is None else marker.is_commit
        is_gone, aborted = self._transactions.end(header, is_commit)
        if header.next_offset > self._latest.end or not is_gone:
            return Outcome(batch, aborted)
        horizon = header.delete_horizon_ms
        if header.record_count == 0 or (horizon is not None and horizon <= self._now_ms):
            return Outcome(self._without_records(header, batch, must_stay), aborted)
        if horizon is not None:
            return Outcome(batch, aborted)
        payload = payload_of(batch)
        kept = spans(payload, header)
        return Outcome(rebuild(header, payload, kept, self._horizon_ms), aborted)

    def _data(
        self, header: BatchHeader, batch: memoryview, is_aborted: bool, must_stay: bool
    ) -> memoryview | bytearray | None:
        if is_aborted or header.record_count == 0:
            return self._without_records(header, batch, must_stay)
        payload = payload_of(batch)
        found = spans(payload, header)
        horizon = header.delete_horizon_ms
        keeps_deletes = horizon is None or self._now_ms < horizon
        if not keeps_deletes:
            self.tombstones_dropped += sum(not span.has_value for span in found)
        kept = [
            span
            for span in found
            if span.key is not None
            and (span.has_value or keeps_deletes)
            and self._latest.is_last(span.key, header.base_offset + span.offset_delta)
        ]
        if not kept:
            return self._without_records(header, batch, must_stay)
        needs_horizon = horizon is None and not all(span.has_value for span in kept)
        if len(kept) == len(found) and not needs_horizon:
            return batch
        self.records_dropped += len(found) - len(kept)
        return rebuild(header, payload, kept, self._horizon_ms if needs_horizon else None)

    def _without_records(
        self, header: BatchHeader, batch: memoryview, must_stay: bool
    ) -> memoryview | bytearray | None:
        self.records_dropped += header.record_count
        if not must_stay:
            return None
        return batch if header.record_count == 0 else emptied(header)

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        known = self._producers.get(header.producer_id) if header.producer_id >= 0 else None
        if known is None:
            return False
        if known.last_offset is None:
            return header.is_control and header.producer_epoch == known.epoch
        return header.last_offset == known.last_offset
