"""A transaction shard with its log and the partitions of its participants, for epoch tests.

Each decision is stored and replayed, or refused. The log may be cut after any record and loaded by
a fresh shard, from all of its records or from those that compaction leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

from headwater.errors import ErrorCode, KafkaError
from headwater.wire.epoch_values import EpochState, EpochStatus, SinkKind
from headwater.wire.sink_names import sink_and_slot
from headwater_broker.coordinator.common.shard import (
    Decision,
    Decisions,
    Now,
    StoredRecord,
    Token,
    each,
)
from headwater_broker.coordinator.transaction import sink_administration
from headwater_broker.coordinator.transaction.config import TransactionConfig
from headwater_broker.coordinator.transaction.epoch_values import (
    EpochReply,
    EpochRequest,
    JoinRequest,
    NamedParticipant,
    Sink,
    TakenOver,
)
from headwater_broker.coordinator.transaction.shard import TransactionShard
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import (
    ClientIdentity,
    Partition,
    ProducerIdentity,
    Transaction,
)

CONFIG = TransactionConfig(epoch_timeout_ms=60_000, epoch_max_ms=3_600_000)
RUN, NEWER_RUN, NEWEST_RUN = UUID(int=0xA), UUID(int=0xB), UUID(int=0xC)
TOPIC_ID = UUID(int=1)
FLIGHTS: dict[Partition, UUID] = {("flights", 0): TOPIC_ID}


def writer(
    epoch: int = 0,
    ticket: int = 1,
    run: UUID = RUN,
    *,
    owner: str = "query",
    kind: SinkKind = SinkKind.QUERY,
) -> EpochRequest:
    return EpochRequest("alerts", owner, run, ticket, epoch, kind)


def named(task: int, joined: Transaction) -> NamedParticipant:
    _, slot = sink_and_slot(joined.transactional_id)
    return NamedParticipant(task, slot, joined.producer_id, joined.producer_epoch)


class EpochLog:
    """The coordinator of one partition of `__transaction_state`."""

    def __init__(self, records: Sequence[StoredRecord] = (), *, compacted: bool = False) -> None:
        self.log = list(records)
        self.now = Now(1_000_000, 0.0)
        self.replies: dict[Token, object] = {}
        self.refuses_after = -1
        """This many more decisions with records are accepted; -1: all."""
        self.outcomes: dict[ProducerIdentity, tuple[bool, int]] = {}
        """Marker that was written -> (whether it commits, the log's end at that time)."""
        self._token = 0
        self._fresh = 100
        self.shard = TransactionShard(CONFIG)
        last = {record.key: offset for offset, record in enumerate(self.log)}
        for offset, record in enumerate(self.log):
            if not compacted or last[record.key] == offset:
                self.shard.replay(offset, -1, -1, record.key, record.value)
        self.shard.loaded(self.now)

    def restarted(self, records: int | None = None, *, compacted: bool = False) -> EpochLog:
        """A successor that has only the first records of the log."""
        found = EpochLog(self.log[:records], compacted=compacted)
        found.now, found._fresh, found._token = self.now, self._fresh + 1_000, self._token
        found.outcomes = {
            identity: (commits, end)
            for identity, (commits, end) in self.outcomes.items()
            if records is None or end <= records
        }
        return found

    # -- requests

    def join(
        self,
        of: EpochRequest,
        task: int = 0,
        attempt: int = 0,
        partitions: dict[Partition, UUID] | None = None,
    ) -> EpochReply:
        self._fresh += 1
        request = JoinRequest(
            of, task, attempt, FLIGHTS if partitions is None else partitions, ClientIdentity(),
            self._fresh,
        )  # fmt: skip
        return self.reply(lambda s, t: s.epochs.join(request, self.now, t))

    def joined(self, of: EpochRequest, task: int = 0, attempt: int = 0) -> Transaction:
        """The participant of a task that may join."""
        reply = self.join(of, task, attempt)
        assert reply.status is EpochStatus.OPEN
        assert reply.participant is not None
        return reply.participant

    def start_commit(self, of: EpochRequest, *participants: NamedParticipant) -> Token:
        """A CommitEpoch whose reply may wait for the markers."""
        return self.ask(
            lambda s, t: s.epochs.decide(of, participants, EpochState.COMMITTING, self.now, t)
        )

    def commit(self, of: EpochRequest, *participants: NamedParticipant) -> EpochReply:
        token = self.start_commit(of, *participants)
        if token not in self.replies:
            self.write_markers()
        return self.replied(token)

    def prepare(self, of: EpochRequest, *participants: NamedParticipant) -> EpochReply:
        return self.reply(
            lambda s, t: s.epochs.decide(of, participants, EpochState.PREPARED, self.now, t)
        )

    def resolve(self, of: EpochRequest, state: EpochState) -> EpochReply:
        token = self.ask(lambda s, t: s.epochs.resolve(of, state, self.now, t))
        if token not in self.replies:
            self.write_markers()
        return self.replied(token)

    def abort(self, of: EpochRequest) -> EpochReply:
        return self.reply(lambda s, t: s.epochs.abort(of, self.now, t))

    def heartbeat(self, of: EpochRequest) -> EpochStatus:
        return self.reply(lambda s, t: s.epochs.heartbeat(of, self.now, t)).status

    def delete(self) -> None:
        token = self.ask(lambda s, t: sink_administration.delete(s.epochs, "alerts", self.now, t))
        error = self.replies[token]
        if isinstance(error, KafkaError):
            raise error

    def take_over(self, owner: str, last_epoch: int) -> TakenOver:
        token = self.ask(
            lambda s, t: sink_administration.take_over(
                s.epochs, "alerts", owner, last_epoch, self.now, t
            )
        )
        found = self.replies[token]
        if isinstance(found, KafkaError):
            raise found
        assert isinstance(found, TakenOver)
        return found

    def enlist(self, joined: Transaction, *indexes: int) -> object:
        """The leaders of partitions enlist them for a participant."""
        partitions = {("flights", index): TOPIC_ID for index in indexes}
        token = self.ask(
            lambda s, t: s.add_partitions(
                joined.transactional_id, joined.identity, partitions, self.now, t
            )
        )
        return self.replies.get(token)

    # -- time and markers

    def wait(self, ms: int) -> None:
        """Time passes; what is due is done."""
        end = self.now.steady_ms + ms
        while (at_ms := self.shard.next_deadline_ms()) is not None and at_ms <= end:
            step = max(at_ms - self.now.steady_ms, 0)
            self.now = Now(self.now.wall_ms + int(step), self.now.steady_ms + step)
            self.take(self.shard.tick(self.now))
        left = end - self.now.steady_ms
        self.now = Now(self.now.wall_ms + int(left), end)

    def due(self) -> list[Transaction]:
        """Participants whose markers are to be sent; each once."""
        return self.shard.take_markers_due(len(self.log))

    def write_markers(self, due: Sequence[Transaction] | None = None) -> None:
        """Every partition of these participants gets its marker."""
        for ended in self.due() if due is None else due:
            commits = ended.state is TransactionState.PREPARE_COMMIT
            written = self.outcomes.setdefault(ended.identity, (commits, len(self.log)))
            assert written[0] is commits, "a partition got the other outcome before"
            name, identity = ended.transactional_id, ended.identity
            self.ask(lambda s, t, n=name, i=identity: s.markers_written(n, i, self.now))

    # -- the runtime

    def ask(self, command: Callable[[TransactionShard, Token], Decisions]) -> Token:
        self._token += 1
        try:
            decisions = command(self.shard, self._token)
        except KafkaError as error:
            self.replies[self._token] = error
            return self._token
        token = self._token
        if not self.take(decisions):
            error = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "too few replicas are in sync")
            self.replies.setdefault(token, error)
        return token

    def reply(self, command: Callable[[TransactionShard, Token], Decisions]) -> EpochReply:
        return self.replied(self.ask(command))

    def replied(self, token: Token) -> EpochReply:
        found = self.replies[token]
        if isinstance(found, KafkaError):
            raise found
        assert isinstance(found, EpochReply)
        return found

    def take(self, decisions: Decisions) -> bool:
        """False when a record was refused."""
        for decision in each(decisions):
            if decision.records:
                if not self.refuses_after:
                    self._answer(decision.replies)
                    return False
                self.refuses_after -= 1
                self._replay(decision)
            self._answer(decision.confirmations + decision.replies + decision.leader_replies)
        return True

    def _replay(self, decision: Decision) -> None:
        for record in decision.records:
            self.shard.replay(len(self.log), -1, -1, record.key, record.value)
            self.log.append(record)

    def _answer(self, replies: list[tuple[Token, object]]) -> None:
        for token, reply in replies:
            self.replies.setdefault(token, reply)

    # -- looking

    def committed(self, *joined: Transaction) -> list[bool | None]:
        """The outcome of each participant's marker; None: it has none."""
        markers = [ProducerIdentity(j.producer_id, j.producer_epoch + 1) for j in joined]
        return [self.outcomes.get(marker, (None, 0))[0] for marker in markers]

    @property
    def sink(self) -> Sink:
        return self.shard.epochs.table.sinks["alerts"]

    @property
    def in_flight(self) -> list[tuple[int, EpochState]]:
        """(epoch, state) of what is not complete."""
        epochs = self.shard.epochs.table.of("alerts")
        return [(key.epoch, epoch.state) for key, epoch in epochs.items()]

    def state(self, joined: Transaction) -> TransactionState:
        return self.shard.transactions[joined.transactional_id].state


def commit_empty(log: EpochLog, *epochs: int) -> None:
    """Commit epochs without rows, each with the ticket epoch + 1."""
    for epoch in epochs:
        assert log.commit(writer(epoch, epoch + 1)).status is EpochStatus.COMMITTED
