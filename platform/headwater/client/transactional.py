"""The transactional calls of a producer, on the caller's thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Iterator
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
from headwater.client.prepared import PreparedTransaction
from headwater.client.producer_options import ProducerOptions
from headwater.client.record_accumulator import RecordAccumulator
from headwater.client.transaction_manager import TransactionManager
from headwater.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from headwater.errors import HeadwaterError, KafkaError, UsageError

log = logging.getLogger(__name__)
T = TypeVar("T")
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


class TransactionalCalls:
    """What `Producer`'s transactional methods do."""

    def __init__(
        self,
        manager: TransactionManager,
        thread: LoopThread,
        accumulator: RecordAccumulator,
        options: ProducerOptions,
    ) -> None:
        self._manager = manager
        self._state = manager.state
        self._thread = thread
        self._lock = accumulator.lock
        self._timeout_ms = options.max_block_ms
        accumulator.check_send = self._state.check_send

    def _call(self, work: Callable[[float], Coroutine[Any, Any, T]], timeout_ms: float | None) -> T:
        limit = self._timeout_ms if timeout_ms is None else timeout_ms
        return self._thread.call(work(limit), limit / 1000 + CALL_MARGIN_S)

    def init(self, timeout_ms: float | None, *, keep_prepared: bool) -> PreparedTransaction | None:
        """See `Producer.init_transactions`."""

        def work(limit: float) -> Coroutine[Any, Any, PreparedTransaction | None]:
            return self._manager.init(limit, keep_prepared=keep_prepared)

        return self._call(work, timeout_ms)

    def begin(self) -> None:
        """See `Producer.begin_transaction`."""
        pending = self._manager.pending_call
        if self._state.phase is Phase.UNINITIALIZED:
            self.init(None, keep_prepared=False)
        elif pending is not None:
            raise IllegalStateError(
                f"begin_transaction(): the outcome of {pending} is not known yet: call it again"
            )
        with self._lock:
            self._state.begin(self._manager.version)

    def commit(self, timeout_ms: float | None) -> None:
        """See `Producer.commit_transaction`."""
        self._call(self._manager.commit, timeout_ms)

    def abort(self, timeout_ms: float | None) -> None:
        """See `Producer.abort_transaction`."""
        self._call(self._manager.abort, timeout_ms)

    def prepare(self, timeout_ms: float | None) -> PreparedTransaction:
        """See `Producer.prepare`."""
        return self._call(self._manager.prepare, timeout_ms)

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
        """Abort because of `error`, which is raised all the same."""
        if self._state.phase in (Phase.READY, Phase.FATAL_ERROR):
            return  # the block itself has ended the transaction, or nothing can
        try:
            self.abort(None)
        except HeadwaterError as e:
            log.warning("transactional id %r: %s", self._state.transactional_id, e)
            error.add_note(f"abort_transaction() failed too: {e}")

    def send_offsets(
        self,
        offsets: Offsets | None,
        group: ConsumerGroupMetadata | GroupMember,
        timeout_ms: float | None,
    ) -> None:
        """See `Producer.send_offsets`."""
        if isinstance(group, GroupMember):
            rows = group.positions() if offsets is None else offset_rows(offsets)
            metadata = group.group_metadata()
        elif isinstance(group, ConsumerGroupMetadata):
            if offsets is None:
                raise UsageError("send_offsets: give offsets, or the consumer itself")
            rows, metadata = offset_rows(offsets), group
        else:
            raise OptionError(
                f"send_offsets for {group!r:.80}: give the consumer or its group_metadata(); for a "
                'group without members ConsumerGroupMetadata("name")'
            )
        if not rows:
            return

        def work(limit: float) -> Coroutine[Any, Any, None]:
            return self._manager.send_offsets(rows, metadata, limit)

        self._call(work, timeout_ms)

    def close(self, timeout_s: float) -> None:
        """Abort what is open, as Kafka's producer does; a prepared transaction stays open."""
        timeout_ms = timeout_s * 1000
        try:
            if self._manager.pending_call == "commit_transaction()":
                self.commit(timeout_ms)
            if self._state.phase in (
                Phase.IN_TRANSACTION,
                Phase.FLUSHING,
                Phase.ABORTING,
                Phase.ABORTABLE_ERROR,
            ):
                log.info("transactional id %r: aborting at close", self._state.transactional_id)
                self.abort(timeout_ms)
        except (KafkaError, KafkaTimeoutError, IllegalStateError) as e:
            log.warning("closing the producer: %s", e)
