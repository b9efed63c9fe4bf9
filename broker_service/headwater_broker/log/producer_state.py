"""Idempotent and transactional producers of one log (KIP-98, KIP-360, KIP-890). Pure.

The state of a producer is its epoch, its last five batches, and where its open transaction
began. It is changed only by batches that are in the log, so a replay of the log rebuilds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.log.transaction_index import AbortedTransaction

BATCHES_KEPT = 5
"""A producer may have so many batches in flight, so that many are known as duplicates."""
SEQUENCE_MAX = 2**31 - 1
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1


class ProducerBatch(NamedTuple):
    """One batch as remembered; its first sequence and offset follow by subtraction."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of the first record, wrap-around undone."""
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """What is known of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "producer_id",
        "transaction_first_offset",
    )

    def __init__(self, producer_id: int, epoch: int = NO_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: list[ProducerBatch] = []
        self.last_timestamp = NO_TIMESTAMP
        self.coordinator_epoch = NO_EPOCH
        self.transaction_first_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        """Of the newest batch; -1 when none is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Of the newest batch; -1 when none is known."""
        return self.batches[-1].last_offset if self.batches else -1

    def find_duplicate(self, epoch: int, first: int, last: int) -> ProducerBatch | None:
        """The remembered batch of this epoch with exactly these sequences."""
        if epoch == self.epoch:
            for batch in self.batches:
                if batch.last_sequence == last and batch.first_sequence == first:
                    return batch
        return None


class Marker(NamedTuple):
    """The end of a transaction, as its control record says."""

    is_commit: bool
    coordinator_epoch: int


class CompletedTransaction(NamedTuple):
    """A transaction whose marker is in the log; it is replicated once HW passes `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool


def increment_sequence(sequence: int, delta: int) -> int:
    """sequence + delta, going on at 0 after 2^31 - 1."""
    return (sequence + delta) & SEQUENCE_MAX


def decrement_sequence(sequence: int, delta: int) -> int:
    """sequence - delta, with the same wrap-around."""
    return (sequence - delta) & SEQUENCE_MAX


class Producers:
    """All producers of one log, and its open transactions."""

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}
        """producer id -> first offset, in the order of the first offsets."""
        self._unreplicated: list[CompletedTransaction] = []

    @property
    def all_decided(self) -> bool:
        """True when no transaction is open, and no marker waits to be replicated."""
        return not self._open and not self._unreplicated

    @property
    def first_undecided_offset(self) -> int | None:
        """First offset of the oldest open transaction."""
        return next(iter(self._open.values()), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """As above, counting transactions whose marker is not below the high watermark yet.

        A marker above it may be lost with the leader; what it decided is not stable before.
        """
        first = self.first_undecided_offset
        for done in self._unreplicated:
            if first is None or done.first_offset < first:
                first = done.first_offset
        return first

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Transactions whose marker is below it are decided for good."""
        if self._unreplicated:
            self._unreplicated = [
                done for done in self._unreplicated if done.last_offset >= high_watermark
            ]

    def check_batch(
        self, producer_id: int, epoch: int, sequence: int, *, transactional: bool, where: str
    ) -> None:
        """May a client's batch be appended? Raises KafkaError. Duplicates were found before."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        if epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{where}: producer {producer_id} writes with epoch {epoch}, "
                f"but epoch {entry.epoch} is known; a newer instance took over",
            )
        if epoch != entry.epoch:
            if sequence != 0 and entry.epoch != NO_EPOCH:
                raise self._out_of_order(entry, epoch, sequence, 0, where)
        elif entry.epoch != NO_EPOCH:
            expected = increment_sequence(entry.last_sequence, 1) if entry.batches else 0
            if sequence != expected:
                raise self._out_of_order(entry, epoch, sequence, expected, where)
        if entry.transaction_first_offset is not None and not transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"{where}: producer {producer_id} has a transaction open since offset "
                f"{entry.transaction_first_offset}, but this batch is not transactional",
            )

    def check_marker(self, producer_id: int, epoch: int, marker: Marker, where: str) -> None:
        """May a coordinator's marker be appended? Raises KafkaError."""
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        if epoch < entry.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{where}: marker of producer {producer_id} has epoch {epoch}, "
                f"but epoch {entry.epoch} is known",
            )
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"{where}: marker of producer {producer_id} comes from coordinator epoch "
                f"{marker.coordinator_epoch}, but {entry.coordinator_epoch} is known",
            )

    def apply_batch(
        self,
        producer_id: int,
        epoch: int,
        sequence: int,
        first_offset: int,
        offset_delta: int,
        timestamp: int,
        *,
        transactional: bool,
    ) -> None:
        """A data batch is in the log."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        if epoch != entry.epoch:
            entry.epoch = epoch
            entry.batches.clear()
        batches = entry.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append(
            ProducerBatch(
                (sequence + offset_delta) & SEQUENCE_MAX,
                first_offset + offset_delta,
                offset_delta,
                timestamp,
            )
        )
        entry.last_timestamp = timestamp
        if transactional and entry.transaction_first_offset is None:
            entry.transaction_first_offset = first_offset
            self._open[producer_id] = first_offset

    def apply_epoch(self, producer_id: int, epoch: int, timestamp: int) -> ProducerEntry:
        """A marker is in the log, perhaps emptied by compaction: it still tells the epoch."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        if epoch != entry.epoch:
            entry.epoch = epoch
            entry.batches.clear()
        entry.last_timestamp = timestamp
        return entry

    def apply_marker(
        self, producer_id: int, epoch: int, marker: Marker, offset: int, timestamp: int
    ) -> CompletedTransaction | None:
        """A marker is in the log. Returns the transaction it ended, if one was open."""
        entry = self.apply_epoch(producer_id, epoch, timestamp)
        first = entry.transaction_first_offset
        entry.transaction_first_offset = None
        entry.coordinator_epoch = marker.coordinator_epoch
        if first is None:
            return None
        self._open.pop(producer_id, None)
        completed = CompletedTransaction(producer_id, first, offset, not marker.is_commit)
        self._unreplicated.append(completed)
        return completed

    def aborted_entry(self, completed: CompletedTransaction) -> AbortedTransaction:
        """Its line in the transaction index: the last stable offset right after its marker.

        Ignores the high watermark, as Kafka does: an open transaction's first offset, else the
        offset after the marker.
        """
        undecided = self.first_undecided_offset
        stable = completed.last_offset + 1 if undecided is None else undecided
        return AbortedTransaction(
            completed.producer_id, completed.first_offset, completed.last_offset, stable
        )

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers without open transaction that were silent for `expiration_ms`."""
        for producer_id, entry in list(self.entries.items()):
            silent_ms = now_ms - entry.last_timestamp
            if entry.transaction_first_offset is None and silent_ms >= expiration_ms:
                del self.entries[producer_id]

    def truncate_head(self, log_start_offset: int) -> None:
        """Records below the log start are gone: transactions that ended there are decided."""
        self._unreplicated = [
            done for done in self._unreplicated if done.last_offset >= log_start_offset
        ]

    def truncate_end(self, offset: int) -> bool:
        """The log was cut at `offset`: forget the batches from there on.

        False, and nothing changed, when the state before them is not known any more (none of a
        producer's remembered batches is left) or is more than batches (transactions): the log has
        to be replayed then.
        """
        if self._open or self._unreplicated:
            return False
        left: list[tuple[ProducerEntry, list[ProducerBatch]]] = []
        for entry in self.entries.values():
            if entry.coordinator_epoch != NO_EPOCH:
                return False
            if entry.last_offset >= offset:
                kept = [batch for batch in entry.batches if batch.last_offset < offset]
                if not kept:
                    return False
                left.append((entry, kept))
        for entry, kept in left:
            entry.batches = kept
            entry.last_timestamp = kept[-1].timestamp
        return True

    def replace(self, entries: Iterable[ProducerEntry]) -> None:
        """Take over a snapshot's entries."""
        self.entries = {entry.producer_id: entry for entry in entries}
        starts = (
            (entry.transaction_first_offset, producer_id)
            for producer_id, entry in self.entries.items()
            if entry.transaction_first_offset is not None
        )
        self._open = {producer_id: first for first, producer_id in sorted(starts)}
        self._unreplicated.clear()

    @staticmethod
    def _out_of_order(
        entry: ProducerEntry, epoch: int, sequence: int, expected: int, where: str
    ) -> KafkaError:
        return KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{where}: producer {entry.producer_id} epoch {epoch} sends sequence {sequence}, "
            f"expected {expected} (known: epoch {entry.epoch}, sequence {entry.last_sequence})",
        )
