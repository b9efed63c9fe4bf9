"""Sends the markers of ended transactions to their partitions, until every one is written (KIP-98).

Kafka's `TransactionMarkerChannelManager`. Markers that are due in the same turn of the loop go to
each leader in one request. A partition whose marker fails is tried again for ever, by its present
leader: after 20 ms, then after longer pauses up to 1 s. A marker counts as written also when

- the partition knows a newer epoch of the producer (INVALID_PRODUCER_EPOCH): its transaction cannot
  be open there. This should not happen, so it is an error in the log;
- the topic is deleted: the metadata cache is complete and does not have its id, nor does the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar
from uuid import UUID

from headwater.clock import Clock
from headwater.errors import ErrorCode, HeadwaterError, KafkaError
from headwater.ordered import OrderedSet
from headwater_broker.coordinator.common.runtime import CoordinatorRuntime
from headwater_broker.coordinator.common.shard import Decision, Now, Token, each
from headwater_broker.coordinator.transaction.shard import TransactionShard
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import Partition, Transaction
from headwater_broker.replica.marker_writer import TransactionMarker
from headwater_broker.runtime.first_step import Finished, first_step

BACKOFF_MS = 20
BACKOFF_MAX_MS = 1_000
LONG_MS = 10_000
"""Failures are logged at attempts 1, 2, 4, 8...: as warnings once markers are late by this much."""
PARTITIONS_PER_REQUEST = 5_000

Codes = Sequence[Mapping[Partition, ErrorCode]]
"""One mapping per marker."""

logger = logging.getLogger(__name__)

T = TypeVar("T")


def backoff_ms(attempts: int) -> int:
    """The pause after so many failed attempts."""
    return min(BACKOFF_MS << min(attempts - 1, 10), BACKOFF_MAX_MS)


class MarkerTransport(Protocol):
    """Where partitions are led, and how markers get there."""

    def leader(self, partition: Partition, topic_id: UUID) -> int | None:
        """The live leader of a partition of the topic with this id, as this broker knows it."""
        ...

    async def is_deleted(self, topic: str, topic_id: UUID) -> bool:
        """True when it is certain that the topic of this id is deleted."""
        ...

    async def write(self, broker_id: int, markers: Sequence[TransactionMarker]) -> Codes:
        """Have a broker write the markers. Raises OSError, TimeoutError, HeadwaterError."""
        ...


class MarkerFailure(NamedTuple):
    """Why a partition has no marker yet."""

    code: ErrorCode
    detail: str
    failed_ms: int
    """Of the last attempt, since 1970."""
    attempts: int


class MarkerTotals(NamedTuple):
    """Counters since the start, for metrics."""

    written: int
    failed: int
    """Attempts that failed, and are made again."""
    stale_epochs: int
    """INVALID_PRODUCER_EPOCH: should stay 0."""


@dataclass(eq=False, slots=True)
class PendingTransaction:
    """An ended transaction whose markers are on their way."""

    log_partition: int
    """Of `__transaction_state`."""
    coordinator_epoch: int
    shard: TransactionShard
    transaction: Transaction
    missing: dict[Partition, UUID]
    """Partitions that do not hold their marker yet."""
    since_ms: int
    failures: dict[Partition, MarkerFailure] = field(default_factory=dict)

    def marker(self, partitions: Sequence[Partition]) -> TransactionMarker:
        """The marker for some of the missing partitions."""
        ended, missing = self.transaction, self.missing
        wanted = ended.partitions  # which nobody changes
        if len(missing) != len(wanted) or len(partitions) != len(wanted):
            wanted = {partition: missing[partition] for partition in partitions}
        return TransactionMarker(
            ended.producer_id,
            ended.producer_epoch,
            ended.state is TransactionState.PREPARE_COMMIT,
            self.coordinator_epoch,
            ended.client_version,
            wanted,
        )


_Batch = list[tuple[PendingTransaction, list[Partition]]]
"""Markers of one request."""


class MarkerSender:
    """The markers of the transactions that this broker coordinates. Runs on the broker's loop."""

    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionShard],
        transport: MarkerTransport,
        clock: Clock,
        *,
        pause_ms: Callable[[int], int] = backoff_ms,
        partitions_per_request: int = PARTITIONS_PER_REQUEST,
    ) -> None:
        """`pause_ms(attempts)`: the pause after so many failed attempts."""
        self._pause_ms = pause_ms
        self._partitions_per_request = partitions_per_request
        self._runtime = runtime
        self._transport = transport
        self._clock = clock
        self._pending: dict[str, PendingTransaction] = {}
        """By transactional id: markers come before its next transaction."""
        self._due: dict[PendingTransaction, list[Partition]] = {}
        """To be sent in this turn of the loop."""
        self._flush_at: asyncio.Handle | None = None
        self._tasks = OrderedSet[asyncio.Future[None]]()
        self._timers = OrderedSet[asyncio.TimerHandle]()
        self._written = self._failed = self._stale_epochs = 0

    # -- what is on its way

    @property
    def pending(self) -> Iterable[PendingTransaction]:
        """Transactions with markers on their way; to be read only."""
        return self._pending.values()

    @property
    def totals(self) -> MarkerTotals:
        """Counters since the start."""
        return MarkerTotals(self._written, self._failed, self._stale_epochs)

    def of(self, transactional_id: str) -> PendingTransaction | None:
        """The markers of a transactional id that are on their way."""
        return self._pending.get(transactional_id)

    # -- sending

    def send(
        self,
        log_partition: int,
        coordinator_epoch: int,
        shard: TransactionShard,
        ended: Iterable[Transaction],
    ) -> None:
        """Send the markers of transactions whose outcome is committed."""
        now_ms = self._clock.now_ms()
        for transaction in ended:
            pending = PendingTransaction(
                log_partition,
                coordinator_epoch,
                shard,
                transaction,
                dict(transaction.partitions),
                now_ms,
            )
            self._pending[transaction.transactional_id] = pending
            self._add_due(pending, list(pending.missing))

    async def close(self) -> None:
        """Stop sending."""
        self._pending.clear()
        for timer in (*self._timers, *filter(None, (self._flush_at,))):
            timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _add_due(self, pending: PendingTransaction, partitions: list[Partition]) -> None:
        self._due.setdefault(pending, []).extend(partitions)
        if self._flush_at is None:
            self._flush_at = asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_at = None
        due, self._due = self._due, {}
        by_broker: dict[int, _Batch] = {}
        leaders: dict[Partition, tuple[UUID, int | None]] = {}
        for pending, partitions in due.items():
            if not self._is_current(pending):
                continue
            if not pending.missing:
                self._complete(pending)
                continue
            by_leader: dict[int | None, list[Partition]] = {}
            for partition in partitions:
                topic_id = pending.missing[partition]
                known = leaders.get(partition)
                if known is None or known[0] is not topic_id:
                    leader = self._transport.leader(partition, topic_id)
                    known = leaders[partition] = (topic_id, leader)
                by_leader.setdefault(known[1], []).append(partition)
            if homeless := by_leader.pop(None, None):
                self._start(self._without_leader(pending, homeless))
            for broker_id, led in by_leader.items():
                if broker_id is not None:
                    by_broker.setdefault(broker_id, []).append((pending, led))
        for broker_id, batch in by_broker.items():
            for part in _parts(batch, self._partitions_per_request):
                begun = first_step(self._send(broker_id, part))
                if not isinstance(begun, Finished):
                    self._start(begun)

    async def _send(self, broker_id: int, batch: _Batch) -> None:
        markers = [pending.marker(partitions) for pending, partitions in batch]
        answers = await _attempt(self._transport.write(broker_id, markers))
        if not isinstance(answers, KafkaError) and len(answers) != len(batch):
            answers = KafkaError(ErrorCode.NETWORK_EXCEPTION, "it left markers out")
        if isinstance(answers, KafkaError):
            detail = f"broker {broker_id}: {answers.detail}"
            for pending, partitions in batch:
                self._retry(pending, dict.fromkeys(partitions, answers.code), detail)
            return
        for (pending, partitions), codes in zip(batch, answers, strict=True):
            self._answered(broker_id, pending, partitions, codes)

    def _answered(
        self,
        broker_id: int,
        pending: PendingTransaction,
        partitions: list[Partition],
        codes: Mapping[Partition, ErrorCode],
    ) -> None:
        if not self._is_current(pending):
            return
        if codes.keys() == pending.missing.keys() and not any(codes.values()):
            self._written += len(codes)
            pending.missing.clear()
            self._complete(pending)
            return
        failed: dict[Partition, ErrorCode] = {}
        for partition in partitions:
            code = codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code is ErrorCode.NONE:
                self._is_written(pending, partition)
            elif code is ErrorCode.INVALID_PRODUCER_EPOCH:
                self._epoch_is_stale(pending, partition)
            elif code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                self._runtime.fenced(pending.log_partition, pending.coordinator_epoch)
                return
            else:
                failed[partition] = code
        if failed:
            self._retry(pending, failed, f"broker {broker_id} refused it")
        elif not pending.missing:
            self._complete(pending)

    def _is_written(self, pending: PendingTransaction, partition: Partition) -> None:
        pending.missing.pop(partition, None)
        pending.failures.pop(partition, None)
        self._written += 1

    def _epoch_is_stale(self, pending: PendingTransaction, partition: Partition) -> None:
        self._stale_epochs += 1
        logger.error(
            "%s-%d knows a newer epoch of producer %d than %d: the marker of %r is not written",
            *partition, pending.transaction.producer_id, pending.transaction.producer_epoch,
            pending.transaction.transactional_id,
        )  # fmt: skip
        self._is_written(pending, partition)

    # -- trying again

    async def _without_leader(
        self, pending: PendingTransaction, partitions: list[Partition]
    ) -> None:
        """Partitions that this broker knows no leader of: the topic may be deleted."""
        deleted: dict[str, bool | KafkaError] = {}
        for topic, index in partitions:
            if topic not in deleted:
                topic_id = pending.missing[topic, index]
                deleted[topic] = await _attempt(self._transport.is_deleted(topic, topic_id))
        if not self._is_current(pending):
            return
        failed: dict[Partition, ErrorCode] = {}
        for partition in partitions:
            answer = deleted[partition[0]]
            if answer is True:
                logger.info("%s-%d is deleted: it needs no marker", *partition)
                self._is_written(pending, partition)
            else:
                failed[partition] = (
                    answer.code
                    if isinstance(answer, KafkaError)
                    else ErrorCode.LEADER_NOT_AVAILABLE
                )
        if failed:
            self._retry(pending, failed, "no leader is known")
        elif not pending.missing:
            self._complete(pending)

    def _retry(
        self, pending: PendingTransaction, codes: Mapping[Partition, ErrorCode], detail: str
    ) -> None:
        if not self._is_current(pending):
            return
        now_ms = self._clock.now_ms()
        attempts = 0
        for partition, code in codes.items():
            before = pending.failures.get(partition)
            attempts = max(attempts, 1 if before is None else before.attempts + 1)
            pending.failures[partition] = MarkerFailure(
                code, detail, now_ms, 1 if before is None else before.attempts + 1
            )
        self._failed += len(codes)
        if attempts & (attempts - 1) == 0:
            is_long = now_ms - pending.since_ms >= LONG_MS
            logger.log(
                logging.WARNING if is_long else logging.INFO,
                "markers of %r are not written to %d partitions, attempt %d: %s (%s)",
                pending.transaction.transactional_id, len(codes), attempts, detail,
                ", ".join(sorted({code.name for code in codes.values()})),
            )  # fmt: skip
        self._later(self._pause_ms(attempts), lambda: self._add_due(pending, list(codes)))

    def _later(self, delay_ms: int, work: Callable[[], None]) -> None:
        def run() -> None:
            self._timers.discard(timer)
            work()

        timer = asyncio.get_running_loop().call_later(delay_ms / 1000, run)
        self._timers.add(timer)

    # -- the end

    def _complete(self, pending: PendingTransaction, attempts: int = 0) -> None:
        """Every partition holds its marker."""
        if not self._is_current(pending):
            return
        ended = pending.transaction
        if not attempts and self._runtime.note(
            pending.log_partition,
            lambda shard, now: shard.complete_later(ended.transactional_id, ended.identity, now),
        ):
            del self._pending[ended.transactional_id]
            return

        def command(shard: TransactionShard, now: Now, token: Token) -> Sequence[Decision]:
            decisions = each(shard.markers_written(ended.transactional_id, ended.identity, now))
            decisions[-1].confirm(token, None)
            return decisions

        def stored(error: KafkaError | None) -> None:
            if error is not None:
                self._complete_later(pending, attempts + 1, error)
            elif self._pending.get(ended.transactional_id) is pending:
                del self._pending[ended.transactional_id]

        try:
            self._runtime.begin(pending.log_partition, command, _Completion(stored))
        except KafkaError as error:
            self._complete_later(pending, attempts + 1, error)

    def _complete_later(
        self, pending: PendingTransaction, attempts: int, error: KafkaError
    ) -> None:
        if not self._is_current(pending):
            return
        name = pending.transaction.transactional_id
        logger.info("the end of %r is not stored yet: %r", name, error)
        self._later(self._pause_ms(attempts), lambda: self._complete(pending, attempts))

    def _is_current(self, pending: PendingTransaction) -> bool:
        """False once the shard is gone, or loaded again: then its load sends all markers again."""
        key = pending.transaction.transactional_id
        if self._pending.get(key) is not pending:
            return False
        if self._runtime.is_current(pending.log_partition, pending.shard):
            return True
        del self._pending[key]
        return False

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("sending markers failed", exc_info=task.exception())


class _Completion:
    """Waits for the record of a completion. Implements `Waiter`, without the handle and the turn of
    the loop that a future's callback takes."""

    __slots__ = ("_stored",)

    def __init__(self, stored: Callable[[KafkaError | None], None]) -> None:
        self._stored = stored

    def done(self) -> bool:
        """See `Waiter`: it waits until it is called."""
        return False

    def set_result(self, _reply: object, /) -> None:
        """See `Waiter`."""
        self._stored(None)

    def set_exception(self, error: KafkaError, /) -> None:
        """See `Waiter`."""
        self._stored(error)


async def _attempt(work: Awaitable[T]) -> T | KafkaError:
    """The result, or why it failed. An unforeseen error is logged, and the attempt is repeated like
    any other, as readers would wait for its markers for ever."""
    try:
        return await work
    except KafkaError as error:
        return error
    except (OSError, TimeoutError, HeadwaterError) as error:
        return KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error))
    except Exception as error:
        logger.exception("sending markers failed")
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error))


def _parts(batch: _Batch, size_max: int) -> Iterable[_Batch]:
    """The batch in requests of bounded size."""
    part: _Batch = []
    size = 0
    for pending, partitions in batch:
        if part and size + len(partitions) > size_max:
            yield part
            part, size = [], 0
        part.append((pending, partitions))
        size += len(partitions)
    yield part
