"""`CheckpointedProducer`: exactly once for engines that take checkpoints as Flink does.

    sink = CheckpointedProducer(servers, transactional_id_prefix="orders")
    sink.recover(last_completed_state)      # commits what it holds, aborts the rest
    sink.send("out", row)                   # ...
    state = sink.pre_commit(7)              # flushed; goes into checkpoint 7
    sink.commit(7)                          # once checkpoint 7 is complete

Between two checkpoints there is one transaction. Its transactional id comes from a pool:
`<prefix>-<worker>-<slot>`. An id is used again only when a later checkpoint is complete that does
not hold its transaction: until then a recovery may have to commit that transaction once more, which
the coordinator answers as long as no other one was begun under the id. Some three ids are in use.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from headwater.client.admin.transactions import TransactionCalls, TransactionFilter
from headwater.client.aio.keywords import CheckpointedProducerKeywords
from headwater.client.checkpoint_state import CheckpointState, checkpoint_states
from headwater.client.cluster import Cluster
from headwater.client.errors import (
    AbortableTransactionError,
    ClosedError,
    FatalTransactionError,
    IllegalStateError,
    OptionError,
    TransactionError,
)
from headwater.client.futures import SendFuture, TableFuture
from headwater.client.loop_thread import LoopThread
from headwater.client.option_rules import as_integer, checked, integer, name_text, unknown_option
from headwater.client.prepared_transaction import PreparedTransaction, end_prepared
from headwater.client.producer import Blob, HeaderList, Producer
from headwater.client.producer_options import ProducerOptions
from headwater.client.security_options import SECURITY_OPTIONS
from headwater.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

TIMEOUT_MS = 900_000
"""The highest that brokers allow by default (transaction.max.timeout.ms)."""
CALL_MARGIN_S = 5.0
STOP_TIMEOUT_S = 5.0
ONGOING = "Ongoing"
"""The state of an open transaction in ListTransactions."""

log = logging.getLogger(__name__)


class _Slot:
    """A transactional id of the pool, and its producer."""

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.producer: Producer | None = None
        self.handle: PreparedTransaction | None = None
        """A transaction that was prepared and is not committed yet."""
        self.prepared_at = -1
        """The checkpoint that `handle` was prepared for."""
        self.held_by = -1
        """The last checkpoint whose state holds a transaction of this id; -1: the id is free."""

    @property
    def is_free(self) -> bool:
        """True when the next transaction may have this id."""
        return self.handle is None and self.held_by < 0


class CheckpointedProducer:
    """Sends records in one transaction per checkpoint. One thread at a time may use it."""

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        *,
        transactional_id_prefix: str,
        worker: int = 0,
        workers: int = 1,
        transaction_timeout_ms: int = TIMEOUT_MS,
        recovery_timeout_ms: int = 60_000,
        **options: Unpack[CheckpointedProducerKeywords],
    ) -> None:
        """`transactional_id_prefix`: of this job and this sink alone. `worker` of `workers`: which
        of the parallel writers this is. `transaction_timeout_ms`: longer than the longest time from
        a checkpoint to the commit of the next one, outages included; a transaction that is open for
        longer is aborted, and `commit` raises FatalTransactionError. `options`: of `Producer`.
        """
        self._prefix = name_text("transactional_id_prefix", transactional_id_prefix)
        self._workers = integer(1)("workers", workers)
        self._worker = integer(0, self._workers - 1)("worker", worker)
        self._recovery_timeout_ms = integer(1)("recovery_timeout_ms", recovery_timeout_ms)
        self._options = options
        self._producer_arguments: dict[str, Any] = {
            **options,
            "bootstrap_servers": bootstrap_servers,
            "transaction_timeout_ms": transaction_timeout_ms,
        }
        self._checked = self._check()
        self._slots: list[_Slot] = []
        self._open: _Slot | None = None
        self._is_recovered = self._is_closed = False
        self._last_checkpoint = -1

    def _check(self) -> ProducerOptions:
        """The producers' options. Raises OptionError, UsageError."""
        parameters = inspect.signature(Producer).parameters
        known = {n: p.default for n, p in parameters.items() if p.kind is not p.VAR_KEYWORD}
        for name in self._options:
            if name == "transactional_id":
                raise OptionError("give transactional_id_prefix instead of transactional_id")
            if name not in known and name not in SECURITY_OPTIONS:
                raise OptionError(
                    unknown_option("CheckpointedProducer", name, [*known, *SECURITY_OPTIONS])
                )
        arguments = {**known, **self._producer_arguments, "transactional_id": self._prefix}
        security = {n: v for n, v in self._options.items() if n in SECURITY_OPTIONS}
        return checked("CheckpointedProducer", ProducerOptions, arguments, security)

    def __enter__(self) -> CheckpointedProducer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- recovery -------------------------------------------------------------------------------

    def recover(
        self,
        states: CheckpointState | str | bytes | Sequence[CheckpointState | str | bytes] | None,
    ) -> None:
        """Begin, or begin again, from the last completed checkpoint; None: there is none.

        Commits the transactions that the states hold (those committed before stay so), and aborts
        whatever else is open under the prefix. When the number of workers has changed, give each
        worker the states of all: it takes those of the workers whose number, modulo `workers`, is
        its own.

        Raises FatalTransactionError when a transaction of the checkpoint is lost (its timeout has
        passed): records are missing then, and the job has to stop. RetriableTransactionError,
        NoBrokersAvailableError: call it again.
        """
        self._check_open()
        mine = [s for s in checkpoint_states(states) if s.worker % self._workers == self._worker]
        self._drop()
        handles = [handle for state in mine for handle in state.prepared]
        options, timeout_ms = self._checked, self._recovery_timeout_ms
        end_prepared(
            options.bootstrap_servers,
            handles,
            options.for_cluster(),
            commit=True,
            timeout_ms=timeout_ms,
        )
        held = {h.transactional_id for h in handles}
        used = {self._name(s.worker, n) for s in mine for n in range(s.slots)}
        self._abort_others(used, held)
        own = max((s.slots for s in mine if s.worker == self._worker), default=0)
        self._last_checkpoint = max((s.checkpoint_id for s in mine), default=-1)
        self._slots = [_Slot(self._name(self._worker, n)) for n in range(own)]
        for slot in self._slots:
            if slot.transactional_id in held:
                slot.held_by = self._last_checkpoint
        self._is_recovered = True

    def _name(self, worker: int, slot: int) -> str:
        return f"{self._prefix}-{worker}-{slot}"

    def _is_mine(self, transactional_id: str) -> bool:
        """True for an id of the pool of a worker that this one stands for."""
        rest = transactional_id.removeprefix(f"{self._prefix}-")
        worker, _, slot = rest.partition("-")
        is_ours = rest != transactional_id and worker.isdecimal() and slot.isdecimal()
        return is_ours and int(worker) % self._workers == self._worker

    def _abort_others(self, used: set[str], held: set[str]) -> None:
        options = self._checked
        thread = LoopThread(f"{options.client_id}-recovery")
        cluster = Cluster(options.bootstrap_servers, options.for_cluster())
        timeout_ms = self._recovery_timeout_ms

        async def work() -> None:
            await cluster.bootstrap(timeout_ms)
            calls = TransactionCalls(cluster)
            found = await calls.list_transactions(TransactionFilter(states=(ONGOING,)))
            mine = {row.transactional_id for row in found if self._is_mine(row.transactional_id)}
            left = sorted((mine | used) - held)
            await calls.fence_all(left, options.transaction_timeout_ms)

        try:
            thread.call(work(), timeout_ms / 1000 + CALL_MARGIN_S)
        finally:
            thread.call(cluster.close(), STOP_TIMEOUT_S)
            thread.stop()

    def _drop(self) -> None:
        """Close every producer: what is open is aborted, what is prepared stays."""
        slots, self._slots, self._open = self._slots, [], None
        for slot in slots:
            if slot.producer is not None:
                slot.producer.close()

    # --- records --------------------------------------------------------------------------------

    def begin(self) -> None:
        """Open the transaction of the next checkpoint; `send` does it where it was not done."""
        if self._open is None:
            self._open = self._next_slot()

    def _producer(self) -> Producer:
        if self._open is None:
            self._open = self._next_slot()
        assert self._open.producer is not None
        return self._open.producer

    def _next_slot(self) -> _Slot:
        self._check_open()
        if not self._is_recovered:
            raise IllegalStateError(
                "call recover() first: with the states of the last completed checkpoint, or None"
            )
        slot = next((s for s in self._slots if s.is_free), None)
        if slot is None:
            slot = _Slot(self._name(self._worker, len(self._slots)))
            self._slots.append(slot)
        if slot.producer is None:
            slot.producer = Producer(
                transactional_id=slot.transactional_id, **self._producer_arguments
            )
        slot.producer.begin_transaction()
        return slot

    def send(
        self,
        topic: str,
        value: Blob | None = None,
        key: Blob | None = None,
        headers: HeaderList | None = None,
        timestamp: int | datetime | None = None,
        partition: int | None = None,
    ) -> SendFuture:
        """`Producer.send` within the open transaction."""
        return self._producer().send(topic, value, key, headers, timestamp, partition)

    def send_table(
        self,
        topic: str,
        table: pa.Table | pa.RecordBatch | pd.DataFrame,
        key: str | None = None,
        value: str | Sequence[str] | None = None,
        headers: str | None = None,
        timestamp: str | int | None = None,
        partition: int | str | None = None,
    ) -> TableFuture:
        """`Producer.send_table` within the open transaction."""
        return self._producer().send_table(topic, table, key, value, headers, timestamp, partition)

    def flush(self, timeout: float | None = None) -> None:
        """`Producer.flush`."""
        if self._open is not None:
            self._producer().flush(timeout)

    # --- checkpoints ------------------------------------------------------------------------------

    def pre_commit(self, checkpoint_id: int) -> CheckpointState:
        """Write what was sent since the last checkpoint; the state that belongs into this one.

        The next `send` opens the next transaction. The state also holds the transactions of earlier
        checkpoints that are not committed yet: a checkpoint that fails needs no call.

        Raises AbortableTransactionError when records were not written: the checkpoint has failed,
        recover from the last completed one.
        """
        self._check_open()
        number = as_integer("checkpoint_id", checkpoint_id)
        if number <= self._last_checkpoint:
            raise UsageError(
                f"checkpoint_id is {number}: the last one was {self._last_checkpoint}; they rise"
            )
        slot = self._open
        if slot is not None:
            assert slot.producer is not None
            handle = slot.producer.prepare()
            self._open = None
            if handle.is_empty:
                slot.producer.commit_transaction()
            else:
                slot.handle, slot.prepared_at = handle, number
        self._last_checkpoint = number
        held = [s for s in self._slots if s.handle is not None]
        for slot in held:
            slot.held_by = number
        held.sort(key=lambda s: s.prepared_at)
        handles = tuple(s.handle for s in held if s.handle is not None)
        return CheckpointState(self._worker, number, len(self._slots), handles)

    def commit(self, checkpoint_id: int) -> None:
        """Checkpoint `checkpoint_id` is complete: commit its transactions and those before.

        Call it again after an error, and as often as you like: what is committed stays so. Raises
        RetriableTransactionError: call it again; FatalTransactionError: records of the checkpoint
        are lost, and the job has to stop.
        """
        self._check_open()
        number = as_integer("checkpoint_id", checkpoint_id)
        if number > self._last_checkpoint:
            last = self._last_checkpoint
            seen = "there was none yet" if last < 0 else f"the last one was of {last}"
            raise UsageError(
                f"commit of checkpoint {number}: call pre_commit({number}) first; {seen}"
            )
        due = [s for s in self._slots if s.handle is not None and s.prepared_at <= number]
        for slot in sorted(due, key=lambda s: s.prepared_at):
            self._commit(slot)
            slot.handle = None
        for slot in self._slots:
            # A recovery is from this checkpoint or a later one: none that holds the id's last one.
            if slot.handle is None and 0 <= slot.held_by < number:
                slot.held_by = -1

    def _commit(self, slot: _Slot) -> None:
        assert slot.producer is not None
        try:
            slot.producer.commit_transaction()
        except AbortableTransactionError as e:
            raise FatalTransactionError(
                e.code,
                f"transactional id {slot.transactional_id!r}: the transaction of checkpoint "
                f"{slot.prepared_at} is lost: the coordinator has aborted it, after "
                f"transaction_timeout_ms ({self._checked.transaction_timeout_ms} ms) or for an "
                f"operator: {e.detail}",
            ) from e

    def abort(self) -> None:
        """Abort the open transaction; transactions of checkpoints stay."""
        slot, self._open = self._open, None
        if slot is None or slot.producer is None:
            return
        try:
            slot.producer.abort_transaction()
        except TransactionError as e:
            log.warning("transactional id %r: %s", slot.transactional_id, e)
            slot.producer.close()
            slot.producer = None

    def close(self) -> None:
        """Abort the open transaction and close the producers. Those of checkpoints stay open, for
        `recover`. A second call does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._drop()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the producer is closed")
