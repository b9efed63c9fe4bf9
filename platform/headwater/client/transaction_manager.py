"""The transactions of a producer, on its loop: the requests to the coordinators, and their order.

The states are `client.core.transaction_states`. One call at a time runs; a call whose time is up
goes on in the background, and the same call made again waits for its outcome. Sequences, and the
epochs of a producer without transactions, are those of `client.core.partition_queue`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, NamedTuple, TypeVar

from headwater.client.cluster import Cluster
from headwater.client.connection import Connection
from headwater.client.coordinator_calls import CoordinatorCalls, transaction_version
from headwater.client.core.partition_queue import PartitionQueue
from headwater.client.core.transaction_states import (
    Event,
    Phase,
    Request,
    TransactionState,
    Verdict,
    verdict,
)
from headwater.client.errors import (
    IllegalStateError,
    RetriableTransactionError,
    TransactionAbortedError,
    kafka_error,
)
from headwater.client.outages import OutageLog
from headwater.client.prepared_transaction import PreparedTransaction
from headwater.client.produce_requests import V1_TRANSACTION_PRODUCE_VERSION
from headwater.client.producer_options import ProducerOptions
from headwater.client.record_accumulator import RecordAccumulator
from headwater.client.transaction_requests import (
    V1_ADD_PARTITIONS_VERSION,
    add_partitions_error,
    add_partitions_request,
    commit_offsets,
    init_producer_id,
)
from headwater.client.values import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from headwater.errors import ErrorCode, KafkaError
from headwater.wire.apis.k24_add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from headwater.wire.apis.k25_add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)

T = TypeVar("T")
INIT, COMMIT, ABORT = "init_transactions()", "commit_transaction()", "abort_transaction()"
PREPARE, OFFSETS = "prepare()", "send_offsets()"


class _Pending(NamedTuple):
    """A call whose outcome its caller does not know yet."""

    call: str
    task: asyncio.Task[Any]


class TransactionManager:
    """What a transactional producer does beside sending batches."""

    def __init__(
        self, cluster: Cluster, options: ProducerOptions, accumulator: RecordAccumulator
    ) -> None:
        assert options.transactional_id is not None
        self.state = TransactionState(options.transactional_id, options.transaction_timeout_ms)
        self.version = 1
        """The transaction version that the next transaction begins with."""
        self.drain: Callable[[], None] = lambda: None
        self.fail_waiting: Callable[[Exception], None] = lambda _: None
        """The sender sets both: send what is due; fail the batches that are not in flight."""
        self._cluster = cluster
        self._options = options
        self._accumulator = accumulator
        self._lock = accumulator.lock
        self._calls = CoordinatorCalls(cluster)
        self._pending: _Pending | None = None
        self._finished = asyncio.Event()
        self._wanted: set[tuple[str, int]] = set()
        """Partitions with batches that the coordinator has not added yet (version 1)."""
        self._adding: asyncio.Task[None] | None = None

    # --- what the sender asks ---------------------------------------------------------------

    def may_send(self, queue: PartitionQueue) -> bool:
        """True when a batch of this partition may leave now; else what it needs is requested.

        Called with the lock held.
        """
        state = self.state
        if state.gives_up_batches or state.producer_id < 0:
            return False
        place = (queue.topic, queue.partition)
        if state.is_v2:
            state.is_started = True
            return True
        if place in state.partitions:
            return True
        self._wanted.add(place)
        if self._adding is None:
            self._adding = asyncio.get_running_loop().create_task(self._add_partitions())
        return False

    def produce_version(self, connection: Connection, version: int) -> int:
        """The Produce version, at most `version`, that says which transaction version is meant.

        Raises KafkaError(UNSUPPORTED_VERSION).
        """
        if not self.state.is_v2:
            return min(version, V1_TRANSACTION_PRODUCE_VERSION)
        if version <= V1_TRANSACTION_PRODUCE_VERSION:
            raise kafka_error(
                ErrorCode.UNSUPPORTED_VERSION,
                f"{connection.host}:{connection.port} serves Produce {version}, transaction "
                f"version 2 needs {V1_TRANSACTION_PRODUCE_VERSION + 1}",
            )
        return version

    def on_finished(self) -> None:
        """Batches are acknowledged, or have failed."""
        self._finished.set()

    def on_failed(self, error: Exception) -> None:
        """A batch failed for good: its transaction can only be aborted."""
        code = error.code if isinstance(error, KafkaError) else ErrorCode.NETWORK_EXCEPTION
        cause = error if isinstance(error, KafkaError) else kafka_error(code, str(error))
        is_fatal = verdict(Request.PRODUCE, code) is Verdict.FATAL
        self._failed("a record was not written", cause, is_fatal=is_fatal)

    def on_lost_produce(self) -> None:
        """The response to a Produce was lost: the batch may arrive late (version 1)."""
        self.state.needs_new_epoch = True

    def _failed(self, what: str, error: KafkaError, *, is_fatal: bool) -> None:
        state = self.state
        with self._lock:
            is_news = state.fatal(error, what) if is_fatal else state.abortable(error, what)
        if is_news:
            assert state.error is not None
            self.fail_waiting(state.error)

    def note_outages(self, outages: OutageLog) -> set[str]:
        """Note that a coordinator does not answer, if that is so; the outage's subject then."""
        trouble = self._calls.trouble
        if trouble is None:
            return set()
        subject = f"transactional id {self.state.transactional_id}"
        code = getattr(trouble, "code", ErrorCode.NETWORK_EXCEPTION)
        cause = f"the coordinator does not answer ({code.name})"
        outages.note(subject, code, cause, self._calls.cause)
        return {subject}

    # --- one call at a time -------------------------------------------------------------------

    @property
    def pending_call(self) -> str | None:
        """The call whose outcome its caller does not know yet."""
        pending = self._pending
        return None if pending is None else pending.call

    async def _run(
        self,
        call: str,
        timeout_ms: float,
        start: Callable[[], None],
        work: Callable[[], Coroutine[Any, Any, T]],
    ) -> T:
        """Start `work`, or join it when an earlier, equal call did not see its end.

        `start` moves the state. Raises RetriableTransactionError when the time is up.
        """
        pending = self._pending
        if pending is None:
            start()
            task: asyncio.Task[Any] = asyncio.get_running_loop().create_task(work())
            task.add_done_callback(lambda t: None if t.cancelled() else t.exception())
            self._pending = _Pending(call, task)
        elif pending.call != call:
            raise IllegalStateError(
                f"{call}: the outcome of {pending.call} is not known yet: call it again first"
            )
        else:
            task = pending.task
        done, _ = await asyncio.wait([task], timeout=timeout_ms / 1000)
        if not done:
            raise self._timeout(call, timeout_ms)
        if self._pending is not None and self._pending.task is task:
            self._pending = None
        if task.cancelled():
            raise IllegalStateError(f"{call} was given up for {ABORT}, called by another thread")
        result: T = task.result()
        return result

    def _timeout(self, call: str, timeout_ms: float) -> RetriableTransactionError:
        state = self.state
        cause = self._calls.cause
        if not cause and state.phase in (Phase.FLUSHING, Phase.ABORTING):
            left = sum(b.count for b in self._accumulator.unfinished())
            cause = f"{left} records are neither acknowledged nor failed"
        other = "" if state.phase is not Phase.FLUSHING else ", or abort_transaction()"
        return RetriableTransactionError(
            ErrorCode.REQUEST_TIMED_OUT,
            f"transactional id {state.transactional_id!r}: {call}: no outcome within "
            f"{timeout_ms:g} ms: {cause or 'no response'}; call it again{other}",
        )

    def _cancel_pending(self) -> None:
        """Give up a call that may be given up for an abort: EndTxn was not sent."""
        pending = self._pending
        if pending is None or self.state.phase in (Phase.COMMITTING, Phase.READY):
            return
        if pending.call in (COMMIT, PREPARE, OFFSETS):
            pending.task.cancel()
            self._pending = None
            self.state.needs_new_epoch = True

    def _begin_flush(self, call: str) -> None:
        with self._lock:
            if self.state.phase not in (Phase.PREPARED, Phase.COMMITTING):
                self.state.move(Event.FLUSH, call)
                self._accumulator.seal_all()

    async def _flushed(self, call: str) -> None:
        """Wait until every batch is acknowledged. Raises the error of the transaction."""
        self.drain()
        await self._all_finished()
        if self.state.phase not in (Phase.FLUSHING, Phase.PREPARED, Phase.COMMITTING):
            raise self.state.refusal(call)

    async def _all_finished(self) -> None:
        while not self._accumulator.is_finished:
            self._finished.clear()
            await self._finished.wait()

    async def _guarded(self, what: str, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`; after a KafkaError the producer cannot go on."""
        try:
            return await work
        except KafkaError as e:
            self._failed(what, e, is_fatal=True)
            raise self.state.refusal(what) from e

    # --- the calls ------------------------------------------------------------------------------

    async def init(
        self, timeout_ms: float, *, keep_prepared: bool = False
    ) -> PreparedTransaction | None:
        """InitProducerId: fence older producers of the id and end what they left open.

        With `keep_prepared` a prepared transaction stays, and is returned (KIP-939).
        """

        def start() -> None:
            with self._lock:
                if self.state.phase is not Phase.UNINITIALIZED:
                    raise self.state.refusal(INIT)

        async def work() -> PreparedTransaction | None:
            prepared = await self._guarded(INIT, self._init(keep_prepared=keep_prepared))
            with self._lock:
                self.state.move(Event.INITIALIZED if prepared is None else Event.RESUMED)
            return prepared

        return await self._run(INIT, timeout_ms, start, work)

    async def _init(self, *, keep_prepared: bool = False) -> PreparedTransaction | None:
        state = self.state

        async def attempt(connection: Connection) -> PreparedTransaction | None:
            reply = await init_producer_id(
                self._cluster,
                connection,
                self._options,
                (state.producer_id, state.producer_epoch),
                keep_prepared=keep_prepared,
            )
            self.version = transaction_version(connection)
            state.identify(reply.producer_id, reply.producer_epoch)
            if reply.ongoing_txn_producer_id < 0:
                return None
            state.is_started, state.version = True, self.version
            return PreparedTransaction(
                state.transactional_id,
                reply.ongoing_txn_producer_id,
                reply.ongoing_txn_producer_epoch,
                self.version,
            )

        return await self._calls.to_transaction(Request.INIT, state.transactional_id, attempt)

    async def commit(self, timeout_ms: float) -> None:
        """Write what was sent, then commit."""

        async def work() -> None:
            await self._flushed(COMMIT)
            with self._lock:
                self.state.move(Event.COMMIT, COMMIT)
            await self._end(commit=True)

        await self._run(COMMIT, timeout_ms, lambda: self._begin_flush(COMMIT), work)

    async def prepare(self, timeout_ms: float) -> PreparedTransaction:
        """Write what was sent; the transaction's handle."""

        async def work() -> PreparedTransaction:
            await self._flushed(PREPARE)
            state = self.state
            with self._lock:
                if state.phase is not Phase.PREPARED:
                    state.move(Event.PREPARE, PREPARE)
            return PreparedTransaction(
                state.transactional_id,
                state.producer_id,
                state.producer_epoch,
                state.version,
                is_empty=not state.is_started,
            )

        def start() -> None:
            if self.state.phase is Phase.COMMITTING:
                raise self.state.refusal(PREPARE)
            self._begin_flush(PREPARE)

        return await self._run(PREPARE, timeout_ms, start, work)

    async def abort(self, timeout_ms: float) -> None:
        """Drop what was not sent, wait for what is in flight, then abort."""

        def start() -> None:
            with self._lock:
                self.state.move(Event.ABORT, ABORT)
            if self._adding is not None:
                self._adding.cancel()
                self.state.needs_new_epoch = True
            self.fail_waiting(
                TransactionAbortedError(
                    ErrorCode.TRANSACTION_ABORTABLE,
                    f"transactional id {self.state.transactional_id!r}: the transaction was "
                    "aborted before the record was sent",
                )
            )

        async def work() -> None:
            await self._all_finished()
            await self._end(commit=False)

        self._cancel_pending()
        await self._run(ABORT, timeout_ms, start, work)

    async def _end(self, *, commit: bool) -> None:
        state = self.state
        what = COMMIT if commit else ABORT
        if state.is_started:
            try:
                identity = await self._calls.end(
                    state.transactional_id,
                    (state.producer_id, state.producer_epoch),
                    state.version,
                    commit=commit,
                    on_lost=self._may_arrive_late,
                )
            except KafkaError as e:
                is_lost_id = verdict(Request.END, e.code) is Verdict.ABORT
                if commit or not is_lost_id:
                    self._failed(what, e, is_fatal=not is_lost_id)
                    raise state.refusal(what) from e
                state.needs_new_epoch = True  # the coordinator knows of no transaction to abort
            else:
                if identity != (state.producer_id, state.producer_epoch):
                    state.identify(*identity)
        if state.needs_new_epoch or (
            any(q.needs_reset for q in self._queues()) and not state.is_v2
        ):
            await self._guarded(what, self._init())
        with self._lock:
            self._wanted.clear()
            self._calls.trouble = None
            state.ended()

    def _queues(self) -> list[PartitionQueue]:
        return list(self._accumulator.queues.values())

    def _may_arrive_late(self) -> None:
        self.state.needs_new_epoch = True

    async def send_offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        group: ConsumerGroupMetadata,
        timeout_ms: float,
    ) -> None:
        """Make the offsets part of the transaction: the group has them once it commits."""
        if self.pending_call == OFFSETS:
            await self._run(OFFSETS, timeout_ms, lambda: None, self._nothing)

        def start() -> None:
            if self.state.phase is not Phase.IN_TRANSACTION:
                raise self.state.refusal(OFFSETS)

        async def work() -> None:
            try:
                if not self.state.is_v2:
                    await self._add_offsets(group.group_id)
                self.state.is_started = True
                await self._commit_offsets(offsets, group)
            except KafkaError as e:
                is_fatal = verdict(Request.COMMIT_OFFSETS, e.code) is Verdict.FATAL
                self._failed(f"{OFFSETS} of group {group.group_id}", e, is_fatal=is_fatal)
                raise self.state.refusal(OFFSETS) from e

        await self._run(OFFSETS, timeout_ms, start, work)

    async def _nothing(self) -> None:
        """The work of a call that only joins another."""

    async def _add_offsets(self, group_id: str) -> None:
        state = self.state
        if group_id in state.groups:
            return
        request = AddOffsetsToTxnRequest(
            transactional_id=state.transactional_id,
            producer_id=state.producer_id,
            producer_epoch=state.producer_epoch,
            group_id=group_id,
        )

        async def attempt(connection: Connection) -> None:
            reply = await self._cluster.call_on(connection, request, AddOffsetsToTxnResponse)
            if reply.error_code:
                raise kafka_error(reply.error_code, "AddOffsetsToTxn")

        await self._calls.to_transaction(
            Request.ADD_OFFSETS, state.transactional_id, attempt, self._may_arrive_late
        )
        state.groups.add(group_id)
        state.is_started = True

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        async def attempt(connection: Connection) -> None:
            await commit_offsets(self._cluster, connection, self.state, offsets, group)

        await self._calls.to_group(
            Request.COMMIT_OFFSETS, group.group_id, attempt, self._may_arrive_late
        )

    async def _add_partitions(self) -> None:
        """Version 1: have the coordinator add the partitions that batches wait for."""
        state = self.state
        asked: set[tuple[str, int]] = set()

        async def attempt(connection: Connection) -> None:
            with self._lock:
                asked.clear()
                asked.update(self._wanted)
            request = add_partitions_request(state, asked)
            version = connection.version_for(AddPartitionsToTxnRequest, V1_ADD_PARTITIONS_VERSION)
            reply = await self._cluster.call_on(
                connection, request, AddPartitionsToTxnResponse, version=version
            )
            error = add_partitions_error(reply)
            if error is not None:
                self._note(asked, error)
                raise error

        try:
            await self._calls.to_transaction(
                Request.ADD_PARTITIONS, state.transactional_id, attempt, self._may_arrive_late
            )
            state.partitions |= asked
            state.is_started = True
            with self._lock:
                self._wanted -= asked
        except KafkaError as e:
            is_fatal = verdict(Request.ADD_PARTITIONS, e.code) is Verdict.FATAL
            self._failed("AddPartitionsToTxn", e, is_fatal=is_fatal)
        finally:
            self._adding = None
            if state.gives_up_batches:
                self._wanted.clear()
        self.drain()

    def _note(self, places: set[tuple[str, int]], error: KafkaError) -> None:
        with self._lock:
            for place in places:
                self._accumulator.queues[place].last_error = error
