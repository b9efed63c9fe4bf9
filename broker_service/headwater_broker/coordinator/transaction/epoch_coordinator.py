"""The epoch transactions of one shard: requests, decisions, completion, deadlines. Pure.

A part of `TransactionShard`, which replays records into it and asks it about participants. Rules:

- no record means abort: the one decision record of an epoch commits, prepares or aborts all of its
  participants; its replay moves them, without records of their own, and their markers follow;
- COMPLETE writes the sink, the participants, and the decision's tombstone, in this order: any
  prefix of these records is safe, and they need not be in one batch;
- only the epoch times out, never a participant by itself; a prepared epoch does not.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from headwater.wire.epoch_values import EpochState, EpochStatus, SinkKind
from headwater.wire.sink_names import sink_and_slot
from headwater_broker.coordinator.common.deadlines import Deadlines
from headwater_broker.coordinator.common.shard import Decision, Now, StoredRecord, Token
from headwater_broker.coordinator.transaction.config import TransactionConfig
from headwater_broker.coordinator.transaction.epoch_admission import (
    check_capacity,
    check_prepared,
    commit_fault,
    is_fenced,
    is_foreign,
    is_newer_run,
    overtaken,
    prepared,
    refusal,
    unknown_sink,
    with_run,
)
from headwater_broker.coordinator.transaction.epoch_completion import completion, with_outcome
from headwater_broker.coordinator.transaction.epoch_participants import ended, joined
from headwater_broker.coordinator.transaction.epoch_records import (
    DecisionKey,
    SinkKey,
    TicketsKey,
    decision_record,
    read_decision,
    read_own_key,
    read_sink,
    read_tickets,
    sink_record,
    sink_tombstone,
)
from headwater_broker.coordinator.transaction.epoch_replies import admitted, answer, settle
from headwater_broker.coordinator.transaction.epoch_tickets import TicketAllocator
from headwater_broker.coordinator.transaction.epoch_values import (
    EPOCHS_IN_FLIGHT_MAX,
    MARKERS_MAX,
    EpochDecision,
    EpochKey,
    EpochReply,
    EpochRequest,
    JoinRequest,
    NamedParticipant,
    Sink,
)
from headwater_broker.coordinator.transaction.id_expiration import expire
from headwater_broker.coordinator.transaction.sink_table import OpenEpoch, SinkTable
from headwater_broker.coordinator.transaction.transaction import Partition, Transaction

Deadline = tuple[str, EpochKey, Token] | str
"""(sink, epoch, request that waits); token 0: the epoch's own. A name: that of a batch's sink."""
OWN = 0

logger = logging.getLogger(__name__)


class EpochCoordinator:
    """See the module."""

    def __init__(
        self,
        config: TransactionConfig,
        participants: Mapping[str, Transaction],
        store: Callable[[Transaction], StoredRecord],
        decided: Callable[[Transaction, int], None],
    ) -> None:
        """`participants`: every transactional id of the shard. `store(transaction)`: its record.
        `decided(transaction, offset)`: its markers are due once the log is committed up to there.
        """
        self.table = SinkTable()
        self.tickets = TicketAllocator()
        self._config = config
        self.participants = participants
        self._store = store
        self._decided = decided
        self._deadlines: Deadlines[Deadline] = Deadlines()

    # -- the log

    def replay(self, offset: int, key: bytes, value: bytes | None) -> None:
        """A record of Headwater's own kinds. Raises HeadwaterError for one that cannot be read:
        without a decision record an epoch would be aborted that is committed."""
        match read_own_key(key):
            case SinkKey(name):
                self.table.replay_sink(name, None if value is None else read_sink(name, value))
            case DecisionKey(sink, epoch):
                decision = None if value is None else read_decision(value)
                found = self.table.replay_decision(sink, epoch, decision)
                if found is not None and found.decision is not None:
                    for slot, name in found.members.items():
                        known = self.participants[name]
                        if not known.state.is_preparing:
                            self._decided(ended(known, slot, found.decision), offset)
            case TicketsKey():
                self.tickets.replay(1 if value is None else read_tickets(value))
            case None:
                pass

    def replay_participant(self, before: Transaction | None, after: Transaction | None) -> None:
        """A record of a participant."""
        self.table.replay_participant(before, after)

    def loaded(self, now: Now) -> None:
        """The log is read to its end: the tasks of open epochs have a whole timeout again."""
        self.tickets.loaded()
        for sink in self.table.sinks.values():
            if sink.kind is SinkKind.BATCH:  # after a long outage its commit may be asked for again
                wait_ms = max(self._batch_wait_ms(sink, now), self._config.epoch_max_ms)
                self._deadlines.set(sink.name, now.steady_ms + wait_ms)
        for epochs in self.table.epochs.values():
            for epoch in epochs.values():
                if epoch.is_decided:  # perhaps complete but for the tombstone
                    self._deadlines.set((epoch.sink, epoch.key, OWN), now.steady_ms)
                elif epoch.state is EpochState.OPEN:
                    self._touch(epoch.sink, epoch.key, epoch.start_ms, now)

    # -- requests

    def join(self, request: JoinRequest, now: Now, token: Token) -> Decision:
        """Replies an EpochReply; the participant of the task is durable before."""
        of, decision = request.of, Decision()
        sink, epochs = self.table.sinks.get(of.sink), self.table.of(of.sink)
        status = refusal(sink, epochs, of)
        if status is EpochStatus.COMMITTED and sink is not None and is_newer_run(sink, of):
            # Its ticket tells this write from a second one of the same batch and run.
            self._admit(sink, of, decision, now)
            return decision.confirm(token, answer(status, sink))
        if status is not None:
            return decision.reply_as_leader(token, answer(status, sink))
        own = epochs.get(of.key)
        known = self._of_attempt(own, request)
        self._touch(of.sink, of.key, now.wall_ms if own is None else own.start_ms, now)
        check_capacity(own, known, request.partitions)
        sink = self._admit(sink, of, decision, now)
        busy = EpochReply(EpochStatus.BUSY, sink.last_epoch)
        if known is not None:
            partitions = {**known.partitions, **request.partitions}
            if partitions == known.partitions:
                return settle(decision, token, admitted(sink, known))
            after = known._replace(partitions=partitions, last_update_ms=now.wall_ms)
        else:
            if own is None and len(epochs) >= EPOCHS_IN_FLIGHT_MAX:
                return settle(decision, token, busy)
            pool = self.table.pool(of.sink)
            slot = pool.free()
            if slot is None:
                return settle(decision, token, busy)
            idle = self.participants.get(pool.known.get(slot, ""))
            after = joined(idle, request, slot, self._config.epoch_max_ms, now.wall_ms)
        decision.records.append(self._store(after))
        decision.confirm(token, admitted(sink, after))
        return decision

    def heartbeat(self, of: EpochRequest, now: Now, token: Token) -> Decision:
        """Replies an EpochReply: OPEN when the epoch's deadline is moved."""
        sink, epochs = self.table.sinks.get(of.sink), self.table.of(of.sink)
        status = refusal(sink, epochs, of)
        own = epochs.get(of.key)
        if status is None and own is not None:
            self._touch(of.sink, of.key, own.start_ms, now)
            return Decision().reply(token, answer(EpochStatus.OPEN, sink))
        return Decision().reply_as_leader(token, answer(status or EpochStatus.ABORTED, sink))

    def decide(
        self,
        of: EpochRequest,
        named: Sequence[NamedParticipant],
        state: EpochState,
        now: Now,
        token: Token,
    ) -> Decision:
        """CommitEpoch and PrepareEpoch (`state`); replies an EpochReply.

        The checks and the record are one step: no join and no other decision is between them.
        """
        decision = Decision()
        sink, epochs = self.table.sinks.get(of.sink), self.table.of(of.sink)
        status = refusal(sink, epochs, of)
        own = epochs.get(of.key)
        if status is EpochStatus.COMMITTED and state is EpochState.COMMITTING:
            return self._committed(of, decision, token, now)
        if status is EpochStatus.PREPARED and state is EpochState.PREPARED:
            check_prepared(own, of)
        if status is not None:
            return decision.reply_as_leader(token, answer(status, sink))
        if sink is None and named:
            return decision.reply_as_leader(token, unknown_sink(of))
        fault = commit_fault(own, named, self.participants)
        sink = self._admit(sink, of, decision, now)
        if fault:
            logger.info("epoch %d of sink %r is aborted: %s", of.epoch, of.sink, fault)
            self._abort(of.key, own, sink, decision, now)
            return decision.confirm(token, EpochReply(EpochStatus.ABORTED, sink.last_epoch))
        slots = {participant.slot: participant.producer_epoch for participant in named}
        self._write(own, of.key, sink, state, slots, decision, now)
        if state is EpochState.PREPARED:
            return decision.confirm(token, EpochReply(EpochStatus.PREPARED, sink.last_epoch))
        if own is None:
            done = EpochReply(EpochStatus.COMMITTED, of.epoch, is_complete=True)
            return decision.confirm(token, done)
        self._wait(own, token, now)
        return decision

    def resolve(self, of: EpochRequest, state: EpochState, now: Now, token: Token) -> Decision:
        """CommitEpoch and AbortEpoch of a prepared epoch, perhaps of an earlier run."""
        decision = Decision()
        sink, epochs = self.table.sinks.get(of.sink), self.table.of(of.sink)
        own = prepared(epochs, of.epoch)
        if own is None or sink is None:
            return self._nothing_prepared(of, state, now, token)
        if is_foreign(sink, of):
            return decision.reply_as_leader(token, answer(EpochStatus.SINK_OWNED, sink))
        if is_fenced(sink, of):
            return decision.reply_as_leader(token, answer(EpochStatus.FENCED, sink))
        assert own.decision is not None
        sink = self._admit(sink, of, decision, now)
        if state is EpochState.ABORTING:
            self._abort(own.key, own, sink, decision, now)
            return decision.confirm(token, EpochReply(EpochStatus.ABORTED, sink.last_epoch))
        self._write(own, own.key, sink, state, own.decision.slots, decision, now)
        if not own.members:
            done = EpochReply(EpochStatus.COMMITTED, of.epoch, is_complete=True)
            return decision.confirm(token, done)
        self._wait(own, token, now)
        return decision

    def _nothing_prepared(
        self, of: EpochRequest, state: EpochState, now: Now, token: Token
    ) -> Decision:
        """No record is an abort. AbortEpoch fences earlier runs all the same, so that none of them
        prepares the epoch afterwards; its own run may go on with the ticket, unless it wrote."""
        decision = Decision()
        sink, epochs = self.table.sinks.get(of.sink), self.table.of(of.sink)
        status = refusal(sink, epochs, of)
        if status is EpochStatus.COMMITTED and state is EpochState.COMMITTING:
            return self._committed(of, decision, token, now)
        if sink is None and state is EpochState.COMMITTING:
            return decision.reply_as_leader(token, unknown_sink(of))
        if status is None and state is EpochState.ABORTING:
            if of.key in epochs:
                return self.abort(of, now, token)
            sink = self._admit(sink, of, decision, now)
        return settle(decision, token, answer(status or EpochStatus.ABORTED, sink))

    def abort(self, of: EpochRequest, now: Now, token: Token) -> Decision:
        """AbortEpoch of an epoch that is not prepared; replies an EpochReply.

        Recorded also where nobody has joined: a CommitEpoch that comes late must not commit it. Not
        so of a batch write, which commits nothing without participants: the record would say of
        one that is forgotten that it was aborted.
        """
        decision = Decision()
        sink, epochs = self.table.sinks.get(of.sink), self.table.of(of.sink)
        status = refusal(sink, epochs, of)
        if status is not None:
            return decision.reply_as_leader(token, answer(status, sink))
        if sink is None and of.kind is SinkKind.BATCH:
            return decision.reply_as_leader(token, unknown_sink(of))
        sink = self._admit(sink, of, decision, now)
        self._abort(of.key, epochs.get(of.key), sink, decision, now)
        return decision.confirm(token, EpochReply(EpochStatus.ABORTED, sink.last_epoch))

    def _of_attempt(self, own: OpenEpoch | None, request: JoinRequest) -> Transaction | None:
        """The participant that an earlier request of the same attempt has got."""
        if own is None:
            return None
        slot = own.by_attempt.get((request.task, request.attempt), -1)
        return self.participants.get(own.members.get(slot, ""))

    def _admit(self, sink: Sink | None, of: EpochRequest, decision: Decision, now: Now) -> Sink:
        """Record a newer run or ticket, and abort what it has overtaken."""
        after = with_run(sink, of, now.wall_ms)
        if after is sink:
            return after
        if sink is not None and sink.run != after.run:
            logger.info(
                "sink %r: run %s (ticket %d) replaces run %s, which is fenced",
                of.sink, after.run, after.ticket, sink.run,
            )  # fmt: skip
        decision.records.append(sink_record(after))
        if after.kind is SinkKind.BATCH:
            self._deadlines.set(after.name, now.steady_ms + self._config.epoch_max_ms)
        if sink is not None:
            self.abort_overtaken(sink, after.ticket, decision, now)
        return after

    def abort_overtaken(self, before: Sink, ticket: int, decision: Decision, now: Now) -> None:
        """Abort open epochs whose ticket is lower; `before`: the sink as their run left it."""
        for epoch in overtaken(self.table.of(before.name), ticket):
            self._abort(epoch.key, epoch, before, decision, now)

    # -- decisions

    def _write(
        self,
        own: OpenEpoch | None,
        key: EpochKey,
        sink: Sink,
        state: EpochState,
        slots: Mapping[int, int],
        decision: Decision,
        now: Now,
    ) -> None:
        """The decision's record; where no participant needs a marker, COMPLETE at once."""
        logger.info(
            "sink %r, epoch %d, ticket %d: %s; %d of %d participants are named",
            sink.name, key.epoch, key.ticket, state.label, len(slots),
            0 if own is None else len(own.members),
        )  # fmt: skip
        if state is not EpochState.PREPARED and (own is None or not own.members):
            after = with_outcome(sink, key, state, now.wall_ms)
            decision.records += completion(own, after, self.participants, self._store, now.wall_ms)
            return
        start_ms = now.wall_ms if own is None else own.start_ms
        run = sink.run if own is None or own.decision is None else own.decision.run
        made = EpochDecision(state, run, slots, start_ms, now.wall_ms)
        decision.records.append(decision_record(sink.name, key, made))

    def _abort(
        self, key: EpochKey, own: OpenEpoch | None, sink: Sink, decision: Decision, now: Now
    ) -> None:
        self._write(own, key, sink, EpochState.ABORTING, {}, decision, now)

    def marker_written(self, known: Transaction, now: Now) -> list[Decision]:
        """Every partition of a participant holds its marker; COMPLETE when it was the last one."""
        own = self.table.epoch_of(known)
        if own is None:
            return [Decision()]
        _, slot = sink_and_slot(known.transactional_id)
        own.written.add(slot)
        return self._complete(own, now) if own.is_written else [Decision()]

    def _complete(self, own: OpenEpoch, now: Now) -> list[Decision]:
        # Its records may be in several batches: the rest is tried again if one is refused.
        self._deadlines.set((own.sink, own.key, OWN), now.steady_ms + self._config.retry_ms)
        sink = self.table.sinks[own.sink]._replace(last_update_ms=now.wall_ms)
        if own.state is EpochState.ABORTING:
            sink = with_outcome(sink, own.key, own.state, now.wall_ms)
        decision = Decision()
        decision.records += completion(own, sink, self.participants, self._store, now.wall_ms)
        for token in own.waiting:
            done = EpochReply(EpochStatus.COMMITTED, own.key.epoch, is_complete=True)
            decision.confirm(token, done)
        return decision.split()

    # -- replies that wait

    def _committed(self, of: EpochRequest, decision: Decision, token: Token, now: Now) -> Decision:
        """A repeated CommitEpoch."""
        for key, epoch in self.table.of(of.sink).items():
            if key.epoch == of.epoch and epoch.state is EpochState.COMMITTING:
                self._wait(epoch, token, now)
                return decision
        done = EpochReply(EpochStatus.COMMITTED, of.epoch, is_complete=True)
        return decision.reply_as_leader(token, done)

    def _wait(self, own: OpenEpoch, token: Token, now: Now) -> None:
        own.waiting.append(token)
        at_ms = now.steady_ms + self._config.epoch_complete_wait_ms
        self._deadlines.set((own.sink, own.key, token), at_ms)

    # -- participants

    def may_enlist(
        self, known: Transaction | None, partitions: Mapping[Partition, object], now: Now
    ) -> bool:
        """Whether the leader of partitions that a participant writes to may enlist them.

        The epoch is open, its markers are not too many; it lives. JoinEpoch alone opens one.
        """
        own = None if known is None else self.table.epoch_of(known)
        if known is None or own is None or own.state is not EpochState.OPEN:
            return False
        added = sum(partition not in known.partitions for partition in partitions)
        if own.partitions + added > MARKERS_MAX:
            return False
        self._touch(own.sink, own.key, own.start_ms, now)
        return True

    # -- deadlines

    def next_deadline_ms(self) -> float | None:
        """When `tick` is wanted next."""
        return self._deadlines.next_ms()

    def tick(self, now: Now) -> list[Decision]:
        """Abort epochs without a sign of life, answer who waited long enough, complete what a load
        has found written."""
        replies, decision, decisions = Decision(), Decision(), list[Decision]()
        completed: set[str] = set()
        for due in self._deadlines.pop_due(now.steady_ms):
            if isinstance(due, str):
                decisions += self._forget_batch(due, now)
                continue
            sink, key, token = due
            own = self.table.of(sink).get(key)
            if own is None:
                continue
            if token != OWN:
                if token in own.waiting:
                    own.waiting.remove(token)
                    # A request whose record was refused has its answer.
                    replies.reply(token, EpochReply(EpochStatus.COMMITTED, key.epoch))
            elif own.state is EpochState.OPEN:
                self._expire(own, decision, now)
            elif own.is_written and sink in completed:
                self._deadlines.set(
                    due, now.steady_ms
                )  # it begins with the sink that this one ends
            elif own.is_written:
                completed.add(sink)
                decisions += self._complete(own, now)
        return [replies, *decision.split(), *decisions]

    def _expire(self, own: OpenEpoch, decision: Decision, now: Now) -> None:
        logger.warning(
            "sink %r, epoch %d, ticket %d: no sign of life for %d ms, or open for more than %d ms: "
            "aborting it", own.sink, own.key.epoch, own.key.ticket,
            self._config.epoch_timeout_ms, self._config.epoch_max_ms,
        )  # fmt: skip
        self._abort(own.key, own, self.table.sinks[own.sink], decision, now)
        self._deadlines.set((own.sink, own.key, OWN), now.steady_ms + self._config.retry_ms)

    def deadline_ms(self, own: OpenEpoch) -> int:
        """When an open epoch is aborted, since 1970; for operators."""
        if own.deadline_ms >= 0:
            return own.deadline_ms
        return own.start_ms + self._config.epoch_timeout_ms

    def _touch(self, sink: str, key: EpochKey, start_ms: int, now: Now) -> None:
        """Move the deadline of an open epoch: its timeout from now, epoch.max.ms in all."""
        left_ms = max(start_ms + self._config.epoch_max_ms - now.wall_ms, 0)
        left_ms = min(self._config.epoch_timeout_ms, left_ms)
        self._deadlines.set((sink, key, OWN), now.steady_ms + left_ms)
        own = self.table.of(sink).get(key)
        if own is not None:
            own.deadline_ms = now.wall_ms + left_ms

    # -- batch writes

    def forgotten(self, name: str, now: Now) -> Decision:
        """Delete a sink and its participants; any prefix of the records is safe."""
        decision = self._without_slots(name, now)
        decision.records.append(sink_tombstone(name))
        return decision

    def _without_slots(self, name: str, now: Now) -> Decision:
        decision = Decision()
        for participant in self.table.pool(name).known.values():
            known = self.participants[participant]
            decision.records.append(self._store(expire(known, now.wall_ms)))
        return decision

    def _batch_wait_ms(self, sink: Sink, now: Now) -> int:
        """Until the next part of a batch write is forgotten: its participants, then its sink."""
        config = self._config
        has_slots = self.table.has_slots(sink.name)
        kept_ms = config.epoch_max_ms if has_slots else config.batch_outcome_ms
        return sink.last_update_ms + kept_ms - now.wall_ms

    def _forget_batch(self, name: str, now: Now) -> list[Decision]:
        """Forget a batch write long after its end: until then its commit may be asked for again."""
        sink = self.table.sinks.get(name)
        if sink is None or sink.kind is not SinkKind.BATCH:
            return []
        wait_ms = self._batch_wait_ms(sink, now)
        # Soon again once something is forgotten, as its record may be refused.
        again_ms = wait_ms if wait_ms > 0 else self._config.retry_ms
        self._deadlines.set(name, now.steady_ms + again_ms)
        if wait_ms > 0 or self.table.of(name):
            return []
        forgotten = self._without_slots if self.table.has_slots(name) else self.forgotten
        return forgotten(name, now).split()
