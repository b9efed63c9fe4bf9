"""Appends to partitions led by this broker, and the waits around them (in Kafka:
`ReplicaManager.appendRecords` and `deleteRecords`): for a guard before, for replication after.

`Partition.append` is the one way to append as leader: it checks leadership and min.insync.replicas
(`tests/tidy/test_append.py`). Appends that have to wait come here: of Produce, coordinators,
transaction markers, and the deletions of DeleteRecords. One that need not wait costs no object:
Produce with acks=1 or a high watermark that has passed already, `LoneAppends` of a coordinator
whose log has no follower, and `MarkerWriter` call `Partition.append` and are done.

`append_guarded` has an asynchronous stage before the append: the leader may have to ask another
broker first, as for the batch that opens a transaction on a partition (KIP-890).
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from headwater.clock import Clock
from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import HEADER_BYTES, NO_PRODUCER_ID
from headwater_broker.log.results import AppendOrigin, AppendResult
from headwater_broker.purgatory.purgatory import WatchedOffset
from headwater_broker.replica.delayed_operations import (
    DelayedDeleteRecords,
    DelayedProduce,
    Purgatories,
    RecordDeletion,
)
from headwater_broker.replica.lowest_sequences import LowestSequences
from headwater_broker.replica.partition import ACKS_ALL, Partition

AT_PRODUCER_ID = 43
_unpack_producer = struct.Struct(">qh").unpack_from

logger = logging.getLogger(__name__)


class Verdict(Protocol):
    """The answer of a guard, to come: the part of a future that is needed of it."""

    def add_done_callback(self, callback: Callable[[Verdict], object], /) -> object:
        """Call back when it is there."""
        ...

    def cancelled(self) -> bool:
        """True when there will be none: this broker stops."""
        ...

    def exception(self) -> BaseException | None:
        """Why the batch is refused."""
        ...


class AppendGuard(Protocol):
    """Decides before a producer's batch is appended. Each method raises KafkaError to refuse it."""

    def verify(self, partition: Partition, batch: memoryview) -> Verdict | None:
        """None: append now. A verdict: append when it is there, reject with its KafkaError.

        It is there within a time limit of its own.
        """
        ...

    def queued(self, partition: Partition, batch: memoryview) -> None:
        """A batch comes behind one that waits for `verify`, and waits with it."""
        ...

    def recheck(self, partition: Partition, batch: memoryview) -> None:
        """A batch that waited is allowed and about to be appended."""
        ...


Deliver = Callable[[AppendResult | KafkaError], None]
"""Takes the outcome of an append that had to wait for its guard."""


class ProducerKey(NamedTuple):
    """One epoch of a producer on one partition: its batches are appended in their order."""

    partition: Partition
    producer_id: int
    producer_epoch: int


class _Waiting(NamedTuple):
    """A batch that waits behind a guard; a copy, as the receive buffer is used again."""

    batch: bytearray
    acks: int
    origin: AppendOrigin
    guard: AppendGuard
    deliver: Deliver


class _Verification:
    """One question of a guard, and the batches that wait for the answer, in order.

    The answer counts for this object only: once it was dropped (leadership ended, the transaction
    was aborted), a later answer to the same question appends nothing. Nor does it after a
    truncation, which may have removed the state that led to the question.
    """

    __slots__ = ("leader_epoch", "truncations", "waiting")

    def __init__(self, partition: Partition) -> None:
        self.leader_epoch = partition.leader_epoch
        self.truncations = partition.log.truncations
        self.waiting: list[_Waiting] = []


class AppendService:
    """Appends of this broker's partitions. All methods run on the broker's loop."""

    def __init__(self, purgatories: Purgatories, clock: Clock) -> None:
        self._purgatories = purgatories
        self._clock = clock
        self._verifications: dict[tuple[Partition, int], dict[int, _Verification]] = {}
        """By partition and producer id, then by producer epoch."""
        self.lowest = LowestSequences()
        """Of producers whose first batch on a partition waits, or was rejected."""

    # -- append

    def append(
        self,
        partition: Partition,
        batches: memoryview,
        *,
        origin: AppendOrigin,
        leader_epoch: int,
        acks: int = ACKS_ALL,
    ) -> AppendResult:
        """Append in `leader_epoch`. Raises NOT_LEADER_OR_FOLLOWER when that epoch is over, and what
        `Partition.append` raises.
        """
        check_led(partition, leader_epoch)
        return partition.append(batches, acks, self._clock.now_ms(), origin)

    def append_guarded(
        self,
        partition: Partition,
        batch: memoryview,
        guard: AppendGuard,
        deliver: Deliver,
        *,
        acks: int = ACKS_ALL,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> AppendResult | None:
        """Append one batch when `guard` allows it; the result, or None when it has to wait.

        What waits is appended in its order per producer epoch, and its outcome goes to `deliver`.
        A batch whose producer already waits is queued without asking again. Raises what
        `Partition.append` raises.
        """
        key = self._producer_key(partition, batch)
        if key is None:
            return partition.append(batch, acks, self._clock.now_ms(), origin)
        verification = self._verification(key)
        if verification is None:
            answer = guard.verify(partition, batch)
            if answer is None:
                return partition.append(batch, acks, self._clock.now_ms(), origin)
            verification = _Verification(partition)
            self._verifications.setdefault(key[:2], {})[key.producer_epoch] = verification
            answer.add_done_callback(partial(self._answered, key, verification))
        else:
            guard.queued(partition, batch)
        verification.waiting.append(_Waiting(bytearray(batch), acks, origin, guard, deliver))
        return None

    @staticmethod
    def _producer_key(partition: Partition, batch: memoryview) -> ProducerKey | None:
        if len(batch) < HEADER_BYTES:
            return None  # the append refuses it
        producer_id, producer_epoch = _unpack_producer(batch, AT_PRODUCER_ID)
        if producer_id == NO_PRODUCER_ID:
            return None
        return ProducerKey(partition, producer_id, producer_epoch)

    def _answered(self, key: ProducerKey, verification: _Verification, answer: Verdict) -> None:
        if answer.cancelled():
            return  # this broker stops
        failed, error = answer.exception(), None
        if isinstance(failed, KafkaError):
            error = failed
        elif failed is not None:
            logger.error(
                "%r: the guard of producer %d failed", key.partition, key.producer_id,
                exc_info=failed,
            )  # fmt: skip
            error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the append guard failed: {failed}")
        if self._verification(key) is not verification:
            return  # dropped meanwhile: its batches have their answer
        self._remove(key)
        for waiting in verification.waiting:
            outcome = error or self._append_waiting(key.partition, verification, waiting)
            if not isinstance(outcome, KafkaError):
                self.lowest.forget(key.partition, key.producer_id)
            elif outcome.code.retriable:
                error = outcome  # the client sends all of them again, in order
            _deliver(waiting, outcome)

    def _append_waiting(
        self, partition: Partition, verification: _Verification, waiting: _Waiting
    ) -> AppendResult | KafkaError:
        batch = memoryview(waiting.batch)
        try:
            check_led(partition, verification.leader_epoch)
            if partition.log.truncations != verification.truncations:
                raise KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS, f"{partition!r}: the log was truncated meanwhile"
                )
            waiting.guard.recheck(partition, batch)
            return self.append(
                partition,
                batch,
                origin=waiting.origin,
                leader_epoch=verification.leader_epoch,
                acks=waiting.acks,
            )
        except KafkaError as refused:
            return refused

    @property
    def has_any_waiting(self) -> bool:
        """True while any batch waits for its guard."""
        return bool(self._verifications)

    def has_waiting(self, partition: Partition, producer_id: int) -> bool:
        """True while a batch of the producer waits for its guard."""
        return (partition, producer_id) in self._verifications

    def drop_waiting(
        self, partition: Partition, producer_id: int, below_epoch: int, error: KafkaError
    ) -> None:
        """Refuse what waits of a producer's epochs below `below_epoch`: its transaction ended."""
        epochs = self._verifications.get((partition, producer_id), ())
        for epoch in [epoch for epoch in epochs if epoch < below_epoch]:
            self._drop(ProducerKey(partition, producer_id, epoch), error)

    def leadership_changed(self, partition: Partition) -> None:
        """`Partition.on_leadership`: refuse what waits for a guard, wake what waits for offsets."""
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition!r}: leadership changed")
        for hosted, producer_id in list(self._verifications):
            if hosted is partition:
                for epoch in list(self._verifications[hosted, producer_id]):
                    self._drop(ProducerKey(partition, producer_id, epoch), error)
        self._purgatories.watches.leadership_changed(partition)

    def _drop(self, key: ProducerKey, error: KafkaError) -> None:
        loop = asyncio.get_running_loop()
        for waiting in self._remove(key).waiting:
            loop.call_soon(_deliver, waiting, error)  # not within a callback of the partition

    def _verification(self, key: ProducerKey) -> _Verification | None:
        by_epoch = self._verifications.get(key[:2])
        return None if by_epoch is None else by_epoch.get(key.producer_epoch)

    def _remove(self, key: ProducerKey) -> _Verification:
        by_epoch = self._verifications[key[:2]]
        if len(by_epoch) == 1:
            del self._verifications[key[:2]]
        return by_epoch.pop(key.producer_epoch)

    # -- wait for replication

    async def committed(
        self, partition: Partition, offset: int, leader_epoch: int, timeout_ms: int
    ) -> None:
        """Return when the high watermark has passed `offset`, appended in `leader_epoch`.

        Raises NOT_LEADER_OR_FOLLOWER when that epoch is over, REQUEST_TIMED_OUT.
        """
        check_led(partition, leader_epoch)
        if partition.high_watermark > offset:
            return
        commit = _Commit(partition, offset, leader_epoch)
        operation = _CommitFuture(self._purgatories, commit)
        operation.start(timeout_ms)
        try:
            await operation.future
        finally:
            operation.cancel()

    async def delete_records(self, deletions: Sequence[RecordDeletion], timeout_ms: int) -> None:
        """Wait until every live replica has moved its log start; each deletion has its code then.

        The caller has moved the log start of the leader.
        """
        await DelayedDeleteRecords(self._purgatories, deletions).wait(timeout_ms)

    async def close(self) -> None:
        """Batches that wait for their guards get no answer."""
        self._verifications.clear()


class _Commit:
    """One append of a coordinator. Implements `AwaitedCommit`."""

    __slots__ = ("code", "last_offset", "leader_epoch", "partition", "watched")

    def __init__(self, partition: Partition, last_offset: int, leader_epoch: int) -> None:
        self.partition: Partition | None = partition
        self.last_offset = last_offset
        self.leader_epoch = leader_epoch
        self.code: ErrorCode | None = None
        self.watched: WatchedOffset | None = None


class _CommitFuture(DelayedProduce[_Commit]):
    """A delayed produce of one append, as a future."""

    __slots__ = ("future",)

    def __init__(self, purgatories: Purgatories, commit: _Commit) -> None:
        super().__init__(purgatories, (commit,))
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def completed(self, commits: Sequence[_Commit]) -> None:
        """Resolve the future."""
        (commit,) = commits
        code, where = commit.code, f"{commit.partition!r}"
        if self.future.done():
            return
        if code is None:
            detail = f"{where}: offset {commit.last_offset} is not replicated yet"
            self.future.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT, detail))
        elif code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.future.set_exception(KafkaError(code, f"{where}: its leadership ended"))
        else:  # below min.insync.replicas by now, but committed all the same
            self.future.set_result(None)

    def on_failure(self, error: Exception) -> None:
        """The await ends with the error."""
        if not self.future.done():
            self.future.set_exception(error)


def check_led(partition: Partition, leader_epoch: int) -> None:
    """Raises NOT_LEADER_OR_FOLLOWER when this broker does not lead in `leader_epoch`."""
    if partition.is_leader and partition.leader_epoch == leader_epoch:
        return
    partition.check_leader_epoch(-1)
    raise KafkaError(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        f"{partition.topic}-{partition.partition}: leader epoch {leader_epoch} is over, "
        f"it is {partition.leader_epoch} now",
    )


def _deliver(waiting: _Waiting, outcome: AppendResult | KafkaError) -> None:
    try:
        waiting.deliver(outcome)
    except Exception:  # the batches behind it get their answers
        logger.exception("the outcome of an append could not be delivered")
