"""All transactional ids of one `__transaction_state` partition: replay, commands, deadlines. Pure.

`coordinator.common.runtime` runs the commands. Only records change the state. The markers of an
outcome are due once its record is committed (`take_markers_due`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.schema import SchemaError
from headwater.wire.sink_names import SINK_ID_PREFIX
from headwater_broker.coordinator.common.deadlines import Deadlines
from headwater_broker.coordinator.common.shard import (
    NOBODY,
    Decision,
    Decisions,
    Now,
    StoredRecord,
    Token,
)
from headwater_broker.coordinator.transaction.add_partitions import (
    add_partitions,
    verify_partitions,
)
from headwater_broker.coordinator.transaction.completions import Completions
from headwater_broker.coordinator.transaction.config import TransactionConfig
from headwater_broker.coordinator.transaction.end_transaction import complete, end_transaction
from headwater_broker.coordinator.transaction.epoch_coordinator import EpochCoordinator
from headwater_broker.coordinator.transaction.epoch_records import OWN_KIND
from headwater_broker.coordinator.transaction.id_expiration import IdExpiration
from headwater_broker.coordinator.transaction.init_producer_id import ProducerInit, init_producer
from headwater_broker.coordinator.transaction.outcomes import (
    Busy,
    Changed,
    Outcome,
    Refused,
    Unchanged,
    Verified,
)
from headwater_broker.coordinator.transaction.records import (
    read_transaction,
    read_transactional_id,
    transaction_record,
)
from headwater_broker.coordinator.transaction.shared_values import SharedValues
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.timeouts import left_ms, time_out
from headwater_broker.coordinator.transaction.transaction import (
    Partition,
    ProducerIdentity,
    Transaction,
)
from headwater_broker.coordinator.transaction.transaction_counts import TransactionCounts
from headwater_broker.coordinator.transaction.waiting_requests import (
    Decide,
    Request,
    Unrecorded,
    reply_of,
)

DECIDED_PER_TICK = 100
"""Timeouts, or expired ids, of one tick."""
CLEANUP = ""
"""The deadline of the next look; no transactional id is empty."""
COMPLETIONS = None
"""The deadline of the records of completions."""

logger = logging.getLogger(__name__)


class TransactionShard:
    """Implements `coordinator.common.shard.Shard`."""

    def __init__(self, config: TransactionConfig) -> None:
        self.transactions: dict[str, Transaction] = {}
        self.counts = TransactionCounts()
        self._config = config
        self._deadlines: Deadlines[str | tuple[str, Token] | None] = Deadlines()
        """By transactional id: its open transaction's timeout; by (id, token): who waits."""
        self._begun_on: dict[str, int] = {}
        """Transactional id -> the connection that enlisted the last partitions of the open
        transaction. An EndTxn on an older one is late: it belongs to an earlier transaction."""
        self._waiting: dict[str, deque[Request]] = {}
        self._left: dict[str, deque[Request]] = {}
        """Requests that still wait once the record that was just decided is in the log."""
        self._expiration = IdExpiration(self.transactions, config)
        self._completions = Completions(config.completion_wait_ms)
        self._prepared_at: dict[str, int] = {}
        """Transactional id -> log offset of its outcome, while its markers are on their way."""
        self._shared = SharedValues()
        self._decided: dict[bytes, tuple[bytes | None, Transaction]] = {}
        """Key -> (value, state) of records just decided: their replay needs not decode them."""
        self._outcomes: deque[tuple[int, str]] = deque()
        """(log offset, transactional id) of outcomes that `take_markers_due` has not returned."""
        self.epochs = EpochCoordinator(config, self.transactions, self._record, self._ended)

    # -- the log

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None
    ) -> None:
        """Apply one record. Kinds of keys that are not known here are skipped, as Kafka does.
        No transaction writes to this topic, so the record is committed.

        Raises NewerTransactionRecordError: loading fails until a broker that reads it leads.
        """
        if key[:1] == OWN_KIND:
            self.epochs.replay(offset, key, value)
            return
        decided = self._decided.pop(key, None)
        made: Transaction | None
        if decided is not None and decided[0] is value and value is not None:
            made = decided[1]
            transactional_id = made.transactional_id
        else:
            try:
                found = read_transactional_id(key)
                if found is None:
                    return
                transactional_id = found
                made = None
                if value is not None:
                    made = self._shared.apply(read_transaction(transactional_id, value))
            except SchemaError:
                logger.exception("skipped a record that cannot be read, key %s", key.hex())
                return
        before = self.transactions.get(transactional_id)
        self.counts.replace(before, made)
        if made is None:
            self.transactions.pop(transactional_id, None)
            self._begun_on.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = made
        self._completions.discard(transactional_id)
        of_epoch = made or before
        if of_epoch is not None and of_epoch.membership is not None:
            self.epochs.replay_participant(before, made)
        if made is None or made.deadline_ms is None:
            self._deadlines.cancel(transactional_id)
        if made is not None and made.state.is_preparing:
            self._prepared_at[transactional_id] = offset
            self._outcomes.append((offset, transactional_id))
        else:
            self._prepared_at.pop(transactional_id, None)
        left = self._left.pop(transactional_id, None)
        if left is not None:
            self._waiting[transactional_id] = left
        if not self._waiting.get(transactional_id, True):
            del self._waiting[transactional_id]

    def replay_end_transaction(
        self, producer_id: int, producer_epoch: int, *, commit: bool
    ) -> None:
        """No transaction writes to this topic: a marker in it ends none."""

    def _ended(self, after: Transaction, offset: int) -> None:
        """The decision at `offset` ends the transaction of a participant of an epoch."""
        transactional_id = after.transactional_id
        self.counts.replace(self.transactions.get(transactional_id), after)
        self.transactions[transactional_id] = after
        self._prepared_at[transactional_id] = offset
        self._outcomes.append((offset, transactional_id))

    def loaded(self, now: Now) -> None:
        """Set the timeouts of open transactions."""
        self.epochs.loaded(now)
        for known in self.transactions.values():
            self._set_timeout(known, now)
        self._deadlines.set(CLEANUP, now.steady_ms + self._config.cleanup_interval_ms)

    def take_markers_due(self, committed_end: int) -> list[Transaction]:
        """Transactions whose outcome is below the high watermark `committed_end`: their partitions
        are to get markers. Each outcome is returned once; after a load, all that are not complete.
        """
        due: list[Transaction] = []
        while self._outcomes and self._outcomes[0][0] < committed_end:
            offset, transactional_id = self._outcomes.popleft()
            if self._prepared_at.get(transactional_id) == offset:
                due.append(self.transactions[transactional_id])
        return due

    def next_deadline_ms(self) -> float | None:
        """When `tick` is wanted next."""
        own_ms, epochs_ms = self._deadlines.next_ms(), self.epochs.next_deadline_ms()
        if own_ms is None or epochs_ms is None:
            return epochs_ms if own_ms is None else own_ms
        return min(own_ms, epochs_ms)

    # -- commands

    def init_producer_id(self, init: ProducerInit, now: Now, token: Token) -> Decision:
        """Replies the ProducerIdentity to go on with, or an InitializedProducer (KIP-939)."""

        client = self._shared.client(init.client)

        def decide(expected: ProducerIdentity | None) -> Decide:
            request = replace(init, expected=expected, client=client)
            return lambda known, now_ms: init_producer(known, request, now_ms)

        def after_abort(fenced: ProducerIdentity) -> Decide:
            # A producer that recovers gets the epoch that the abort has raised. One that kept a
            # prepared transaction under a newer producer id goes on from the fence (KIP-939).
            expected = init.expected
            if expected is not None and expected.producer_id != fenced.producer_id:
                expected = fenced
            return decide(expected)

        request = Request(token, decide(init.expected), after_abort)
        return self._run(init.transactional_id, request, now)

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: Mapping[Partition, UUID],
        now: Now,
        token: Token,
        connection: int | None = None,
    ) -> Decision:
        """Replies the producer's ProducerIdentity once the partitions are enlisted. `connection`:
        the number of the client's connection; None: a broker asks."""

        is_of_epoch = transactional_id.startswith(SINK_ID_PREFIX)

        def decide(known: Transaction | None, now_ms: int) -> Outcome:
            outcome = add_partitions(known, producer, partitions, now_ms)
            if isinstance(outcome, Changed | Unchanged):
                if is_of_epoch and not self.epochs.may_enlist(known, partitions, now):
                    return Refused(ErrorCode.INVALID_TXN_STATE)
                self._begun_on[transactional_id] = connection or 0
            return outcome

        return self._run(transactional_id, Request(token, decide), now)

    def holds(
        self, transactional_id: str, producer: ProducerIdentity, partitions: frozenset[Partition]
    ) -> bool:
        """True when `producer` has its transaction open, with all these partitions."""
        outcome = verify_partitions(self._known(transactional_id), producer, partitions)
        return isinstance(outcome, Verified) and not any(outcome.codes.values())

    def verify_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[Partition],
        now: Now,
        token: Token,
    ) -> Decision:
        """Replies the codes by partition (`Verified`)."""

        def decide(known: Transaction | None, _now_ms: int) -> Outcome:
            return verify_partitions(known, producer, partitions)

        return self._run(transactional_id, Request(token, decide), now)

    def end_transaction(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        commit: bool,
        client_version: int,
        fresh_producer_id: int,
        now: Now,
        token: Token,
        connection: int | None = None,
    ) -> Decision:
        """Replies the ProducerIdentity to go on with, once the outcome is durable. `connection`:
        the number of the client's connection, of a client whose transactions share an epoch."""

        def decide(known: Transaction | None, now_ms: int) -> Outcome:
            outcome = end_transaction(
                known,
                producer,
                commit=commit,
                client_version=client_version,
                fresh_producer_id=fresh_producer_id,
                now_ms=now_ms,
            )
            is_late = (connection or 0) < self._begun_on.get(transactional_id, 0)
            if connection is not None and is_late and isinstance(outcome, Changed):
                # Nobody waits for the reply of the older connection.
                return Refused(ErrorCode.CONCURRENT_TRANSACTIONS)
            return outcome

        return self._run(transactional_id, Request(token, decide), now)

    def complete_later(self, transactional_id: str, producer: ProducerIdentity, now: Now) -> bool:
        """Every partition holds the marker, and nobody waits for that: complete without a record
        for now. False: `markers_written` is to decide."""
        known = self.transactions.get(transactional_id)
        if (
            known is None
            or not known.state.is_preparing
            or known.membership is not None
            or known.identity != producer
            or transactional_id in self._waiting
            or transactional_id in self._left
        ):
            return False
        self._completions.add(complete(known, now.wall_ms), now)
        if not self._deadlines.is_set(COMPLETIONS):
            self._deadlines.set(COMPLETIONS, now.steady_ms + self._config.completion_wait_ms)
        return True

    def markers_written(
        self, transactional_id: str, producer: ProducerIdentity, now: Now
    ) -> Decisions:
        """Every partition holds the marker of `producer`: complete, and decide who waited.

        If the next transaction begins at once, only its record is written: it says the same.
        """
        decision = Decision()
        known = self.transactions.get(transactional_id)
        if known is None or not known.state.is_preparing or known.identity != producer:
            return decision
        if known.membership is not None:
            return self.epochs.marker_written(known, now)
        waiting = deque(self._waiting.get(transactional_id, ()))
        # A refused record leaves those who wait where they are.
        after = complete(known, now.wall_ms)
        self._left[transactional_id] = waiting
        self._write(self._decide(after, waiting, decision, now, is_stored=False), decision, now)
        return decision

    # -- deciding

    def _known(self, transactional_id: str) -> Transaction | None:
        completed = self._completions.get(transactional_id)
        return self.transactions.get(transactional_id) if completed is None else completed

    def _run(self, transactional_id: str, request: Request, now: Now) -> Decision:
        decision = Decision()
        if request.token == NOBODY and transactional_id in self._waiting:
            return decision  # those who wait come first
        self._left.pop(transactional_id, None)  # of a decision whose record was refused
        known = self._known(transactional_id)
        queue = deque((request,))
        after = self._decide(known, queue, decision, now, is_stored=True)
        if queue and request.token != NOBODY:
            # It met markers on their way, or it aborted a transaction and waits for these.
            waiting = deque((*self._waiting.get(transactional_id, ()), *queue))
            if after is known:
                self._waiting[transactional_id] = waiting
            else:
                self._left[transactional_id] = waiting
            at_ms = now.steady_ms + self._config.busy_wait_ms
            self._deadlines.set((transactional_id, request.token), at_ms)
        if after is not known and after is not None:
            self._write(after, decision, now)
        return decision

    def _decide(
        self,
        known: Transaction | None,
        queue: deque[Request],
        decision: Decision,
        now: Now,
        *,
        is_stored: bool,
    ) -> Transaction | None:
        """Decide requests in their order until one has to wait; the state after them.

        While `known` is not stored yet, each reply depends on the record of this decision. A reply
        that changes nothing is `Unrecorded`.
        """
        while queue:
            request = queue[0]
            outcome = request.decide(known, now.wall_ms)
            if isinstance(outcome, Busy):
                break
            queue.popleft()
            if isinstance(outcome, Changed):
                known, is_stored = outcome.after, False
                if outcome.then_retry and request.retry is not None:
                    retried = request.retry(outcome.after.identity)
                    queue.appendleft(request._replace(decide=retried))
                    break
            if not is_stored:
                decision.confirm(request.token, reply_of(outcome))
            elif isinstance(outcome, Unchanged):
                decision.reply(request.token, Unrecorded(outcome.identity))
            else:
                decision.reply(request.token, reply_of(outcome))
        return known

    def _write(self, after: Transaction | None, decision: Decision, now: Now) -> None:
        assert after is not None
        decision.records.append(self._record(after))
        self._set_timeout(after, now)

    def _record(self, after: Transaction) -> StoredRecord:
        record = transaction_record(after)
        self._decided[record.key] = (record.value, after)
        return record

    def _set_timeout(self, known: Transaction, now: Now) -> None:
        """A timeout whose record was refused finds another state, and does nothing."""
        if (left := left_ms(known, now.wall_ms)) is not None:
            self._deadlines.set(known.transactional_id, now.steady_ms + left)

    # -- deadlines

    def tick(self, now: Now) -> Sequence[Decision]:
        """Abort what timed out, refuse who waited too long, forget expired ids.

        Records of transactions with thousands of partitions may be larger than one batch together:
        they are appended in parts. The replies depend on none of them.
        """
        decision = Decision()
        due = self._deadlines.pop_due(now.steady_ms)
        for key in due:
            if isinstance(key, tuple):
                self._refuse_waiting(*key, decision)
            elif key == CLEANUP:
                self._clean_up(decision, now)
            elif key == COMPLETIONS:
                self._record_completions(decision, now)
            elif len(decision.records) >= DECIDED_PER_TICK:
                self._deadlines.set(key, now.steady_ms)
            else:
                self._time_out(key, decision, now)
        replies = Decision()
        replies.replies, decision.replies = decision.replies, []
        answered, *of_epochs = self.epochs.tick(now)
        return (replies, answered, *decision.split(), *of_epochs)

    def _refuse_waiting(self, transactional_id: str, token: Token, decision: Decision) -> None:
        """Its token may have been answered meanwhile: the runtime knows that."""
        left = deque(r for r in self._waiting.pop(transactional_id, ()) if r.token != token)
        if left:
            self._waiting[transactional_id] = left
        detail = f"the last transaction of {transactional_id!r} is still being ended"
        decision.reply(token, KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, detail))

    def _record_completions(self, decision: Decision, now: Now) -> None:
        decision.records += map(self._record, self._completions.take_due(now))
        next_ms = self._completions.next_ms(now)
        if next_ms is not None:
            self._deadlines.set(COMPLETIONS, next_ms)

    def _time_out(self, transactional_id: str, decision: Decision, now: Now) -> None:
        known = self.transactions.get(transactional_id)
        if known is None or (left := left_ms(known, now.wall_ms)) is None:
            return
        if left > 0:
            self._set_timeout(known, now)
            return
        self._write(time_out(known, now.wall_ms), decision, now)
        self._deadlines.set(transactional_id, now.steady_ms + self._config.retry_ms)

    def _clean_up(self, decision: Decision, now: Now) -> None:
        """One part of a look for ids that were idle too long; the next part follows soon."""
        room = DECIDED_PER_TICK - len(decision.records)
        decision.records += map(transaction_record, self._expiration.next_part(now.wall_ms, room))
        self._deadlines.set(CLEANUP, now.steady_ms + self._expiration.pause_ms)

    # -- looking

    def described(self, transactional_id: str) -> Transaction:
        """Raises KafkaError(TRANSACTIONAL_ID_NOT_FOUND)."""
        known = self._known(transactional_id)
        if known is None:
            detail = f"transactional id {transactional_id!r} is not known"
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, detail)
        return known

    def listed(
        self,
        states: frozenset[TransactionState],
        producer_ids: frozenset[int],
        longer_than_ms: int,
        now_ms: int,
    ) -> Iterable[Transaction]:
        """Transactional ids that match every filter; empty sets and -1 match all (KIP-664)."""
        for transactional_id, stored in self.transactions.items():
            known = self._completions.get(transactional_id) or stored
            if states and known.state not in states:
                continue
            if producer_ids and known.producer_id not in producer_ids:
                continue
            if longer_than_ms >= 0 and now_ms - known.start_ms <= longer_than_ms:
                continue
            yield known
