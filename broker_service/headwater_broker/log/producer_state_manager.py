"""Idempotent and transactional producers of one log (Kafka's ProducerStateManager). Pure.

The state of a producer is its epoch, its last five batches, and the first offset of its open
transaction. Only batches in the log change the state, so a replay of the log rebuilds it (KIP-98,
KIP-360, KIP-890). `log_validator` calls `find_duplicate` and
`check_batch` before an append.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import CONTROL_MASK, TRANSACTIONAL_MASK
from headwater_broker.log.transaction_index import AbortedTransaction

BATCHES_KEPT = 5
"""A producer has at most this many batches in flight: any of them may be sent again."""
SEQUENCE_MAX = 2**31 - 1
EPOCH_PER_TRANSACTION = 2
"""Since this transaction.version every transaction has a producer epoch of its own (KIP-890)."""
NO_EPOCH = -1
NO_SEQUENCE = -1
NO_TIMESTAMP = -1
_make = tuple.__new__
"""Makes a named tuple from a tuple faster than its class does."""


class ProducerBatch(NamedTuple):
    """A remembered batch (Kafka's BatchMetadata)."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence of the first record; sequences wrap around."""
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """The state of one producer id (Kafka's ProducerStateEntry)."""

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
        """Last sequence of the newest batch; -1 when none is known."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_offset(self) -> int:
        """Last offset of the newest batch; -1 when none is known."""
        return self.batches[-1].last_offset if self.batches else -1

    def find_duplicate(self, epoch: int, first: int, last: int) -> ProducerBatch | None:
        """The remembered batch of this epoch with exactly these first and last sequences."""
        if epoch == self.epoch:
            for batch in self.batches:
                if batch.last_sequence == last and batch.first_sequence == first:
                    return batch
        return None


class Marker(NamedTuple):
    """The content of an end-transaction marker."""

    is_commit: bool
    coordinator_epoch: int


class CompletedTransaction(NamedTuple):
    """A transaction whose marker, at `last_offset`, is in the log. It is stable when the high
    watermark has passed the marker."""

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
        """Open transactions: producer id -> first offset, in the order of the first offsets."""
        self._unreplicated: list[CompletedTransaction] = []
        """Completed transactions whose markers the high watermark has not passed."""
        self._swept_offset = -1
        """The last offset of all batches that the last `expire` has seen."""

    @property
    def all_decided(self) -> bool:
        """Whether no transaction is open and all markers are replicated."""
        return not self._open and not self._unreplicated

    @property
    def open_transactions(self) -> Mapping[int, int]:
        """Producer id -> first offset of its open transaction, in the order of the offsets."""
        return self._open

    @property
    def first_undecided_offset(self) -> int | None:
        """First offset of the oldest open transaction."""
        return next(iter(self._open.values()), None)

    @property
    def first_unstable_offset(self) -> int | None:
        """First offset of the oldest transaction that is open or whose marker is not replicated.

        A marker above the high watermark may be lost with the leader, so its transaction is not
        stable yet.
        """
        first = self.first_undecided_offset
        for done in self._unreplicated:
            if first is None or done.first_offset < first:
                first = done.first_offset
        return first

    def high_watermark_moved(self, high_watermark: int) -> None:
        """Drop completed transactions whose marker is below the high watermark."""
        if self._unreplicated:
            self._unreplicated = [
                done for done in self._unreplicated if done.last_offset >= high_watermark
            ]

    def follows(self, producer_id: int, epoch: int, sequence: int, attributes: int) -> bool:
        """True for a client's usual batch, as `check_batch` would say: the next one in its
        producer's sequence, the first one of an epoch or of a producer. It is no duplicate.

        `attributes`: of the batch; False for control batches.
        """
        if attributes & CONTROL_MASK:
            return False
        entry = self.entries.get(producer_id)
        if entry is None:
            return True
        if entry.transaction_first_offset is not None and not attributes & TRANSACTIONAL_MASK:
            return False
        if epoch != entry.epoch:
            return epoch > entry.epoch and sequence == 0
        batches = entry.batches
        if not batches:  # a marker has begun this epoch (KIP-890)
            return sequence == 0
        return sequence == (batches[-1].last_sequence + 1) & SEQUENCE_MAX

    def check_batch(
        self, producer_id: int, epoch: int, sequence: int, *, transactional: bool, where: str
    ) -> None:
        """Check that a client's batch may be appended; the caller has ruled out a duplicate. Raises
        KafkaError."""
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

    def check_marker(
        self,
        producer_id: int,
        epoch: int,
        coordinator_epoch: int,
        where: str,
        *,
        transaction_version: int = 1,
    ) -> bool:
        """True when a coordinator's marker is to be appended; False when the log has it already.

        Version 2 bumps the epoch with every marker (KIP-890): one of the known epoch repeats the
        marker that ended the transaction, unless a transaction is open in that epoch, which then
        is a later one. A higher epoch is appended even when no transaction is open, as it fences
        the producer's late batches. Raises INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return True
        is_repeated = transaction_version >= EPOCH_PER_TRANSACTION and epoch == entry.epoch
        began = entry.transaction_first_offset
        if epoch < entry.epoch or (is_repeated and began is not None):
            state = "" if began is None else f", with a transaction open since offset {began}"
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"{where}: marker of producer {producer_id} has epoch {epoch}, "
                f"but epoch {entry.epoch} is known{state}",
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"{where}: marker of producer {producer_id} comes from coordinator epoch "
                f"{coordinator_epoch}, but {entry.coordinator_epoch} is known",
            )
        return not is_repeated

    def apply_batch(
        self,
        producer_id: int,
        epoch: int,
        sequence: int,
        first_offset: int,
        offset_delta: int,
        timestamp: int,
        transactional: bool,
    ) -> None:
        """Apply a data batch of the log."""
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
            _make(
                ProducerBatch,
                (
                    (sequence + offset_delta) & SEQUENCE_MAX,
                    first_offset + offset_delta,
                    offset_delta,
                    timestamp,
                ),
            )
        )
        entry.last_timestamp = timestamp
        if transactional and entry.transaction_first_offset is None:
            entry.transaction_first_offset = first_offset
            self._open[producer_id] = first_offset

    def apply_epoch(self, producer_id: int, epoch: int, timestamp: int) -> ProducerEntry:
        """Apply the epoch of a marker in the log, which compaction may have emptied."""
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
        """Apply a marker of the log; the transaction that it ended, or None."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id)
        if epoch != entry.epoch:
            entry.epoch = epoch
            entry.batches.clear()
        entry.last_timestamp = timestamp
        first = entry.transaction_first_offset
        entry.transaction_first_offset = None
        entry.coordinator_epoch = marker.coordinator_epoch
        if first is None:
            return None
        self._open.pop(producer_id, None)
        completed = _make(CompletedTransaction, (producer_id, first, offset, not marker.is_commit))
        self._unreplicated.append(completed)
        return completed

    def aborted_entry(self, completed: CompletedTransaction) -> AbortedTransaction:
        """The entry of the transaction index, with the last stable offset right after the marker.

        As in Kafka that is the first offset of the oldest open transaction, or else the offset
        after the marker, whatever the high watermark is.
        """
        undecided = self.first_undecided_offset
        stable = completed.last_offset + 1 if undecided is None else undecided
        return AbortedTransaction(
            completed.producer_id, completed.first_offset, completed.last_offset, stable
        )

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers that wrote nothing for `expiration_ms`, by the timestamps of their
        records; never one with an open transaction, and none that has written since the last call.

        Records may be older than that when they are written (a backfill): Kafka then forgets the
        producer amid its batches, and appends a repeated one twice.
        """
        swept, newest = self._swept_offset, -1
        for producer_id, entry in list(self.entries.items()):
            last = entry.last_offset
            if last > newest:
                newest = last
            silent_ms = now_ms - entry.last_timestamp
            is_silent = silent_ms >= expiration_ms and last <= swept
            if is_silent and entry.transaction_first_offset is None:
                del self.entries[producer_id]
        self._swept_offset = max(swept, newest)

    def truncate_head(self, log_start_offset: int) -> None:
        """Drop completed transactions that ended below the log start."""
        self._unreplicated = [
            done for done in self._unreplicated if done.last_offset >= log_start_offset
        ]

    def truncate_end(self, offset: int) -> bool:
        """Forget the batches from `offset` on, where the log was truncated.

        Returns False, and changes nothing, when the state before them is not known (no remembered
        batch of a producer is left) or has transactions: the log must be replayed then.
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
        self._swept_offset = min(self._swept_offset, offset - 1)
        return True

    def replace(self, entries: Iterable[ProducerEntry]) -> None:
        """Replace all state by a snapshot's entries."""
        self.entries = {entry.producer_id: entry for entry in entries}
        starts = (
            (entry.transaction_first_offset, producer_id)
            for producer_id, entry in self.entries.items()
            if entry.transaction_first_offset is not None
        )
        self._open = {producer_id: first for first, producer_id in sorted(starts)}
        self._unreplicated.clear()
        self._swept_offset = -1

    @staticmethod
    def _out_of_order(
        entry: ProducerEntry, epoch: int, sequence: int, expected: int, where: str
    ) -> KafkaError:
        return KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"{where}: producer {entry.producer_id} epoch {epoch} sends sequence {sequence}, "
            f"expected {expected} (known: epoch {entry.epoch}, sequence {entry.last_sequence})",
        )
