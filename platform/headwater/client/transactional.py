"""The transactional calls of a producer: coroutines, and the blocking ones on a thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar, runtime_checkable

from headwater.client.core.transaction_states import Phase
from headwater.client.errors import (
    AbortableTransactionError,
    IllegalStateError,
    KafkaTimeoutError,
    OptionError,
)
from headwater.client.loop_thread import LoopThread
from headwater.client.partition_names import Offsets, offset_rows
from headwater.client.prepared_transaction import PreparedTransaction
from headwater.client.producer_options import ProducerOptions
from headwater.client.record_accumulator import RecordAccumulator
from headwater.client.transaction_manager import TransactionManager
from headwater.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from headwater.errors import HeadwaterError, KafkaError, UsageError

log = logging.getLogger(__name__)
T = TypeVar("T")
OffsetRows = Mapping[TopicPartition, OffsetAndMetadata]
CALL_MARGIN_S = 5.0


@runtime_checkable
class GroupMember(Protocol):
    """A consumer of a group (`headwater.Consumer`)."""

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The group and this member."""
        ...

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The next offset of each assigned partition."""
        ...


class TransactionVerbs:
    """The transactional calls as coroutines, for the engine's loop. Both producers have them."""

    def __init__(
        self,
        manager: TransactionManager,
        accumulator: RecordAccumulator,
        options: ProducerOptions,
    ) -> None:
        self._manager = manager
        self._state = manager.state
        self._lock = accumulator.lock
        self._timeout_ms = options.max_block_ms
        accumulator.check_send = self._state.check_send

    def limit_ms(self, timeout_ms: float | None) -> float:
        """The time limit of a call: `max_block_ms` unless it has its own."""
        return self._timeout_ms if timeout_ms is None else timeout_ms

    async def init(self, limit_ms: float, *, keep_prepared: bool) -> PreparedTransaction | None:
        """See `Producer.init_transactions`."""
        return await self._manager.init(limit_ms, keep_prepared=keep_prepared)

    async def begin(self) -> None:
        """See `Producer.begin_transaction`."""
        pending = self._manager.pending_call
        if self._state.phase is Phase.UNINITIALIZED:
            await self.init(self._timeout_ms, keep_prepared=False)
        elif pending is not None:
            raise IllegalStateError(
                f"begin_transaction(): the outcome of {pending} is not known yet: call it again"
            )
        with self._lock:
            self._state.begin(self._manager.version)

    async def commit(self, limit_ms: float) -> None:
        """See `Producer.commit_transaction`."""
        await self._manager.commit(limit_ms)

    async def abort(self, limit_ms: float) -> None:
        """See `Producer.abort_transaction`."""
        await self._manager.abort(limit_ms)

    async def prepare(self, limit_ms: float) -> PreparedTransaction:
        """See `Producer.prepare`."""
        return await self._manager.prepare(limit_ms)

    async def abort_after(self, error: BaseException) -> None:
        """Abort because of `error`, which the caller raises all the same."""
        if self._state.phase in (Phase.READY, Phase.FATAL_ERROR):
            return  # the block itself has ended the transaction, or nothing can
        try:
            await self.abort(self._timeout_ms)
        except HeadwaterError as e:
            log.warning("transactional id %r: %s", self._state.transactional_id, e)
            error.add_note(f"abort_transaction() failed too: {e}")

    async def send_offsets(
        self, rows: OffsetRows, metadata: ConsumerGroupMetadata, limit_ms: float
    ) -> None:
        """See `Producer.send_offsets`."""
        if rows:
            await self._manager.send_offsets(rows, metadata, limit_ms)

    async def close(self, limit_ms: float) -> None:
        """Abort what is open, as Kafka's producer does; a prepared transaction stays open."""
        try:
            if self._manager.pending_call == "commit_transaction()":
                await self.commit(limit_ms)
            if self._state.phase in (
                Phase.IN_TRANSACTION,
                Phase.FLUSHING,
                Phase.ABORTING,
                Phase.ABORTABLE_ERROR,
            ):
                log.info("transactional id %r: aborting at close", self._state.transactional_id)
                await self.abort(limit_ms)
        except (KafkaError, KafkaTimeoutError, IllegalStateError) as e:
            log.warning("closing the producer: %s", e)


def group_offsets(
    offsets: Offsets | None, group: ConsumerGroupMetadata | GroupMember
) -> tuple[OffsetRows, ConsumerGroupMetadata]:
    """The arguments of `send_offsets`. Raises OptionError, UsageError."""
    if isinstance(group, GroupMember):
        rows = group.positions() if offsets is None else offset_rows(offsets)
        return rows, group.group_metadata()
    if isinstance(group, ConsumerGroupMetadata):
        if offsets is None:
            raise UsageError("send_offsets: give offsets, or the consumer itself")
        return offset_rows(offsets), group
    raise OptionError(
        f"send_offsets for {group!r:.80}: give the consumer or its group_metadata(); for a "
        'group without members ConsumerGroupMetadata("name")'
    )


class TransactionalCalls:
    """What `Producer`'s transactional methods do, on the caller's thread."""

    def __init__(self, verbs: TransactionVerbs, thread: LoopThread) -> None:
        self._verbs = verbs
        self._thread = thread

    def _call(self, work: Callable[[float], Coroutine[Any, Any, T]], timeout_ms: float | None) -> T:
        limit = self._verbs.limit_ms(timeout_ms)
        return self._thread.call(work(limit), limit / 1000 + CALL_MARGIN_S)

    def init(self, timeout_ms: float | None, *, keep_prepared: bool) -> PreparedTransaction | None:
        """See `Producer.init_transactions`."""
        return self._call(
            lambda limit: self._verbs.init(limit, keep_prepared=keep_prepared), timeout_ms
        )

    def begin(self) -> None:
        """See `Producer.begin_transaction`."""
        self._call(lambda _: self._verbs.begin(), None)

    def commit(self, timeout_ms: float | None) -> None:
        """See `Producer.commit_transaction`."""
        self._call(self._verbs.commit, timeout_ms)

    def abort(self, timeout_ms: float | None) -> None:
        """See `Producer.abort_transaction`."""
        self._call(self._verbs.abort, timeout_ms)

    def prepare(self, timeout_ms: float | None) -> PreparedTransaction:
        """See `Producer.prepare`."""
        return self._call(self._verbs.prepare, timeout_ms)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """See `Producer.transaction`."""
        self.begin()
        try:
            yield
        except BaseException as error:
            self._abort_after(error)
            raise
        try:
            self.commit(None)
        except AbortableTransactionError as error:
            self._abort_after(error)
            raise

    def _abort_after(self, error: BaseException) -> None:
        self._call(lambda _: self._verbs.abort_after(error), None)

    def send_offsets(
        self,
        offsets: Offsets | None,
        group: ConsumerGroupMetadata | GroupMember,
        timeout_ms: float | None,
    ) -> None:
        """See `Producer.send_offsets`."""
        rows, metadata = group_offsets(offsets, group)
        self._call(lambda limit: self._verbs.send_offsets(rows, metadata, limit), timeout_ms)

    def close(self, timeout_s: float) -> None:
        """Abort what is open, as Kafka's producer does; a prepared transaction stays open."""
        try:
            self._call(self._verbs.close, timeout_s * 1000)
        except KafkaTimeoutError as e:
            log.warning("closing the producer: %s", e)
