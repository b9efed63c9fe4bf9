"""The transaction coordinator of one partition: waiting, timeouts, expiry, loading."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.common.shard import Decision, Now, StoredRecord, Token
from headwater_broker.coordinator.transaction.config import TransactionConfig
from headwater_broker.coordinator.transaction.init_producer_id import ProducerInit
from headwater_broker.coordinator.transaction.shard import TransactionShard
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import (
    TRANSACTION_V2,
    ProducerIdentity,
    Transaction,
)
from headwater_broker.coordinator.transaction.waiting_requests import Unrecorded

S = TransactionState
CONFIG = TransactionConfig(expiration_ms=1_000_000, cleanup_interval_ms=3_600_000)
PARTITIONS = {("flights", 0): UUID(int=1)}
MORE = {("weather", 0): UUID(int=2)}
TIMEOUT_MS = 60_000


class Coordinator:
    """A shard with its log: each decision is stored and replayed, or refused."""

    def __init__(self) -> None:
        self.shard = TransactionShard(CONFIG)
        self.log: list[StoredRecord] = []
        self.replies: dict[Token, object] = {}
        self.now = Now(1_000_000, 0.0)
        self.refuses = False
        self._due: list[Transaction] = []
        self._token = 0
        self._fresh = 100

    def wait(self, ms: int) -> None:
        self.now = Now(self.now.wall_ms + ms, self.now.steady_ms + ms)

    def take(self, decision: Decision) -> None:
        if decision.records and self.refuses:
            self._answer(decision.replies)
            return
        for record in decision.records:
            self.replay(record)
        self._answer(decision.confirmations)
        self._answer(decision.replies)

    def replay(self, record: StoredRecord) -> None:
        self.shard.replay(len(self.log), -1, -1, record.key, record.value)
        self.log.append(record)

    @property
    def due(self) -> list[ProducerIdentity]:
        """Producers of the markers to send: everything in the log is committed."""
        self._due += self.shard.take_markers_due(len(self.log))
        return [due.identity for due in self._due]

    def _answer(self, replies: list[tuple[Token, object]]) -> None:
        for token, reply in replies:
            self.replies.setdefault(token, reply)

    def ask(self, command: Callable[[Token], Decision]) -> Token:
        self._token += 1
        self._fresh += 1
        self.take(command(self._token))
        return self._token

    def init(self, expected: ProducerIdentity | None = None, name: str = "t") -> Token:
        init = ProducerInit(
            transactional_id=name,
            timeout_ms=TIMEOUT_MS,
            fresh_producer_id=self._fresh + 1,
            expected=expected,
        )
        return self.ask(lambda token: self.shard.init_producer_id(init, self.now, token))

    def add(
        self,
        producer: ProducerIdentity,
        name: str = "t",
        connection: int | None = None,
        **more: UUID,
    ) -> Token:
        partitions = {(topic, 0): made for topic, made in more.items()} or PARTITIONS
        return self.ask(
            lambda token: self.shard.add_partitions(
                name, producer, partitions, self.now, token, connection
            )
        )

    def end(
        self,
        producer: ProducerIdentity,
        *,
        commit: bool = True,
        version: int = 2,
        connection: int | None = None,
    ) -> Token:
        return self.ask(
            lambda token: self.shard.end_transaction(
                "t",
                producer,
                commit=commit,
                client_version=version,
                fresh_producer_id=self._fresh,
                now=self.now,
                token=token,
                connection=connection,
            )
        )

    def markers(self) -> None:
        """The markers of the last outcome are written."""
        [due] = self.due
        self.take(self.shard.markers_written("t", due, self.now))
        self._due = [] if not self.refuses else self._due

    def completes_later(self) -> bool:
        """The markers of the last outcome are written; True: no record says so yet."""
        [due] = self.due
        self._due = []
        return self.shard.complete_later("t", due, self.now)

    def tick(self) -> None:
        for decision in self.shard.tick(self.now):
            self.take(decision)

    def identity(self, token: Token) -> ProducerIdentity:
        reply = self.replies[token]
        if isinstance(reply, Unrecorded):
            reply = reply.identity
        assert isinstance(reply, ProducerIdentity), reply
        return reply

    def code(self, token: Token) -> ErrorCode:
        reply = self.replies[token]
        assert isinstance(reply, KafkaError), reply
        return reply.code

    @property
    def state(self) -> S:
        return self.shard.transactions["t"].state


def ongoing() -> tuple[Coordinator, ProducerIdentity]:
    c = Coordinator()
    producer = c.identity(c.init())
    c.identity(c.add(producer))
    return c, producer


def test_a_transaction_from_init_to_complete() -> None:
    c, producer = ongoing()
    assert c.state is S.ONGOING
    after = c.identity(c.end(producer))
    assert after == ProducerIdentity(producer.producer_id, producer.epoch + 1)
    assert c.due == [after] and c.state is S.PREPARE_COMMIT
    c.markers()
    assert c.state is S.COMPLETE_COMMIT
    assert len(c.log) == 4


def test_the_next_transaction_waits_for_the_markers_of_the_last() -> None:
    c, producer = ongoing()
    after = c.identity(c.end(producer))
    waits = c.add(after, weather=UUID(int=2))
    assert waits not in c.replies
    written = len(c.log)
    c.markers()
    assert c.identity(waits) == after
    assert c.state is S.ONGOING
    assert len(c.log) == written + 1, "one record says both"
    assert set(c.shard.transactions["t"].partitions) == {("weather", 0)}


def test_who_waits_too_long_is_told_to_come_again() -> None:
    c, producer = ongoing()
    after = c.identity(c.end(producer))
    waits = c.add(after)
    c.wait(CONFIG.busy_wait_ms)
    c.tick()
    assert c.code(waits) is ErrorCode.CONCURRENT_TRANSACTIONS
    c.markers()
    assert c.state is S.COMPLETE_COMMIT, "it is not decided after all"


def test_a_newer_producer_waits_for_the_abort_of_the_open_transaction() -> None:
    c, producer = ongoing()
    newer = c.init()
    assert newer not in c.replies and c.state is S.PREPARE_ABORT
    late = c.end(producer)
    assert c.code(late) is ErrorCode.PRODUCER_FENCED
    c.markers()
    made = c.identity(newer)
    assert made == ProducerIdentity(producer.producer_id, producer.epoch + 2)
    assert c.state is S.EMPTY


def test_a_recovering_producer_goes_on_after_the_abort_of_its_own_transaction() -> None:
    c, producer = ongoing()
    again = c.init(producer)
    assert again not in c.replies
    c.markers()
    raised = ProducerIdentity(producer.producer_id, producer.epoch + 1)
    assert c.identity(again) == raised
    assert c.identity(c.init(producer)) == raised, "a retry, whose reply was lost"
    assert c.code(c.end(producer, commit=False)) is ErrorCode.PRODUCER_FENCED


def test_two_newer_producers_are_served_in_order() -> None:
    c, producer = ongoing()
    first, second = c.init(), c.init()
    c.markers()
    assert c.identity(first).epoch == producer.epoch + 2
    assert c.identity(second).epoch == producer.epoch + 3


def test_who_waits_may_open_and_be_fenced_by_the_next_in_one_go() -> None:
    c, producer = ongoing()
    after = c.identity(c.end(producer))
    adds, newer = c.add(after), c.init()
    c.markers()
    assert c.identity(adds) == after
    assert newer not in c.replies and c.state is S.PREPARE_ABORT
    c.markers()
    assert c.identity(newer).epoch == after.epoch + 2


def test_an_open_transaction_times_out_once() -> None:
    c, producer = ongoing()
    c.wait(TIMEOUT_MS - 1)
    c.tick()
    assert c.state is S.ONGOING
    c.wait(1)
    c.tick()
    assert c.state is S.PREPARE_ABORT
    assert c.due == [ProducerIdentity(producer.producer_id, producer.epoch + 1)]
    c.wait(TIMEOUT_MS)
    c.tick()
    assert len(c.due) == 1
    c.markers()
    assert c.state is S.COMPLETE_ABORT


@pytest.mark.parametrize("is_complete", [False, True])
def test_a_producer_whose_transaction_timed_out_may_abort_and_go_on(is_complete: bool) -> None:
    c, producer = ongoing()
    c.wait(TIMEOUT_MS)
    c.tick()
    if is_complete:
        c.markers()
    assert c.code(c.end(producer)) is ErrorCode.TRANSACTION_ABORTABLE
    assert c.code(c.end(producer, version=0)) is ErrorCode.TRANSACTION_ABORTABLE
    assert c.code(c.end(producer, commit=False, version=0)) is ErrorCode.PRODUCER_FENCED
    raised = ProducerIdentity(producer.producer_id, producer.epoch + 1)
    assert c.identity(c.end(producer, commit=False)) == raised
    if not is_complete:
        c.markers()
    c.identity(c.add(raised))
    assert c.code(c.end(producer)) is ErrorCode.PRODUCER_FENCED, "the next one has begun"


def test_a_producer_that_a_newer_one_aborted_stays_fenced() -> None:
    c, producer = ongoing()
    c.init()
    assert c.code(c.end(producer)) is ErrorCode.PRODUCER_FENCED
    assert c.code(c.end(producer, commit=False)) is ErrorCode.PRODUCER_FENCED


def test_a_timeout_whose_record_is_refused_is_decided_again() -> None:
    c, _ = ongoing()
    c.wait(TIMEOUT_MS)
    c.refuses = True
    c.tick()
    assert c.state is S.ONGOING
    c.refuses = False
    c.wait(CONFIG.retry_ms)
    c.tick()
    assert c.state is S.PREPARE_ABORT


def test_timeouts_of_many_partitions_do_not_share_a_batch() -> None:
    """Together their records are larger than a batch may be, which would refuse all of them, again
    and again; their readers would wait for ever."""
    c = Coordinator()
    names = [f"t{n}" for n in range(40)]
    many = {f"topic-{n}": UUID(int=n + 1) for n in range(1_000)}
    for name in names:
        c.identity(c.add(c.identity(c.init(name=name)), name, **many))
    c.wait(TIMEOUT_MS)
    decisions = c.shard.tick(c.now)
    assert sum(len(d.records) for d in decisions) == len(names)
    assert all(d.size_max_bytes < 1_000_000 for d in decisions)
    assert not any(d.replies for d in decisions if d.records), "a refused part keeps none"


def test_a_timeout_runs_from_the_begin_not_from_the_last_partition() -> None:
    c, producer = ongoing()
    c.wait(TIMEOUT_MS - 10)
    c.identity(c.add(producer, weather=UUID(int=2)))
    c.wait(10)
    c.tick()
    assert c.state is S.PREPARE_ABORT


def test_a_refused_completion_keeps_who_waits() -> None:
    c, producer = ongoing()
    after = c.identity(c.end(producer))
    waits = c.add(after)
    c.refuses = True
    c.markers()
    assert c.state is S.PREPARE_COMMIT and waits not in c.replies
    c.refuses = False
    c.markers()
    assert c.identity(waits) == after and c.state is S.ONGOING


def test_late_news_of_markers_changes_nothing() -> None:
    c, producer = ongoing()
    after = c.identity(c.end(producer))
    c.markers()
    c.identity(c.add(after))
    c.take(c.shard.markers_written("t", after, c.now))
    assert c.state is S.ONGOING
    c.take(c.shard.markers_written("unknown", after, c.now))


def test_a_successor_loads_the_same_and_sends_the_markers_again() -> None:
    c, producer = ongoing()
    after = c.identity(c.end(producer))
    successor = Coordinator()
    for record in c.log:
        successor.replay(record)
    successor.shard.loaded(successor.now)
    assert successor.shard.transactions == c.shard.transactions
    assert successor.due == [after]
    assert successor.identity(successor.end(producer)) == after, (
        "the reply was lost with the leader"
    )


def completed_later() -> tuple[Coordinator, ProducerIdentity]:
    c, producer = ongoing()
    following = c.identity(c.end(producer))
    assert c.completes_later() and c.state is S.PREPARE_COMMIT
    assert c.shard.described("t").state is S.COMPLETE_COMMIT
    return c, following


def test_the_record_of_the_next_transaction_completes_the_last_one() -> None:
    c, producer = completed_later()
    c.identity(c.add(producer, weather=UUID(int=2)))
    assert c.state is S.ONGOING and set(c.shard.transactions["t"].partitions) == {("weather", 0)}
    written = len(c.log)
    c.wait(1_000)
    c.tick()
    assert len(c.log) == written, "the completion needs no record any more"


def test_a_completion_that_no_transaction_follows_is_recorded_and_refused_records_again() -> None:
    c, producer = completed_later()
    c.refuses = True
    for _ in range(2):
        c.wait(1_000)
        c.tick()
        assert c.state is S.PREPARE_COMMIT
    c.refuses = False
    c.wait(1_000)
    c.tick()
    assert c.state is S.COMPLETE_COMMIT and c.shard.next_deadline_ms() is not None
    last = ProducerIdentity(producer.producer_id, producer.epoch - 1)
    assert c.identity(c.end(last)) == producer, "a retry of EndTxn"


def test_a_successor_that_loads_before_the_completion_is_recorded_sends_the_markers_again() -> None:
    c, producer = completed_later()
    successor = Coordinator()
    for record in c.log:
        successor.replay(record)
    assert successor.due == [producer]
    successor.markers()
    assert successor.state is S.COMPLETE_COMMIT


def test_who_waits_for_the_markers_is_not_served_later() -> None:
    c, producer = ongoing()
    following = c.identity(c.end(producer))
    waits = c.add(following)
    assert not c.completes_later() and waits not in c.replies


def test_a_successor_times_out_what_was_open() -> None:
    c, _ = ongoing()
    successor = Coordinator()
    successor.now = Now(c.now.wall_ms + TIMEOUT_MS, 5.0)
    for record in c.log:
        successor.replay(record)
    successor.shard.loaded(successor.now)
    successor.tick()
    assert successor.state is S.PREPARE_ABORT


def test_idle_ids_expire_and_open_ones_do_not() -> None:
    c, producer = ongoing()
    c.shard.loaded(c.now)
    c.identity(c.init(name="idle"))
    c.wait(3_600_000)
    c.tick()
    assert "idle" not in c.shard.transactions
    assert "t" in c.shard.transactions
    again = c.add(producer, name="idle")
    assert c.code(again) is ErrorCode.INVALID_PRODUCER_ID_MAPPING


def test_transactions_are_listed_by_state_producer_and_age() -> None:
    c, producer = ongoing()
    idle = c.identity(c.init(name="idle"))
    c.wait(5_000)

    def names(
        states: frozenset[S] = frozenset(), ids: frozenset[int] = frozenset(), longer_ms: int = -1
    ) -> set[str]:
        found = c.shard.listed(states, ids, longer_ms, c.now.wall_ms)
        return {row.transactional_id for row in found}

    assert names() == {"t", "idle"}
    assert names(frozenset([S.ONGOING])) == {"t"}
    assert names(ids=frozenset([idle.producer_id])) == {"idle"}
    assert names(longer_ms=4_000, states=frozenset([S.ONGOING])) == {"t"}
    assert names(longer_ms=6_000, states=frozenset([S.ONGOING])) == set()
    assert c.shard.described("t").identity == producer
    with pytest.raises(KafkaError, match="not known"):
        c.shard.described("none")


def test_version_1_and_version_2_share_a_coordinator() -> None:
    c, producer = ongoing()
    assert c.identity(c.end(producer, version=1)) == producer
    c.markers()
    assert c.identity(c.add(producer)) == producer
    assert c.identity(c.end(producer, version=TRANSACTION_V2)).epoch == producer.epoch + 1


def test_markers_are_due_once_the_outcome_is_committed() -> None:
    c, producer = ongoing()
    after = c.identity(c.end(producer))
    assert c.shard.take_markers_due(len(c.log) - 1) == [], "the record is not replicated yet"
    assert c.due == [after]
    assert c.shard.take_markers_due(len(c.log)) == [], "each outcome is returned once"
    c.markers()
    assert c.due == []


def test_a_late_end_on_an_older_connection_does_not_end_the_next_transaction() -> None:
    c = Coordinator()
    producer = c.identity(c.init())
    c.identity(c.add(producer, connection=1))
    c.identity(c.end(producer, version=1, commit=False, connection=2))
    c.markers()
    c.identity(c.add(producer, connection=2))
    late = c.end(producer, version=1, commit=False, connection=1)
    assert c.code(late) is ErrorCode.CONCURRENT_TRANSACTIONS
    assert c.state is S.ONGOING
    c.identity(c.end(producer, version=1, connection=3))
    assert c.state is S.PREPARE_COMMIT


def test_a_fenced_producer_or_an_earlier_transaction_does_not_age_a_connection() -> None:
    c = Coordinator()
    old = c.identity(c.init())
    c.identity(c.add(old, connection=9))
    newer = c.init()
    c.markers()
    producer = c.identity(newer)
    c.identity(c.add(producer, connection=4))
    assert c.code(c.add(old, connection=9)) is ErrorCode.PRODUCER_FENCED
    c.identity(c.end(producer, version=1, connection=4))
    assert c.state is S.PREPARE_COMMIT


def test_a_fenced_producer_on_an_older_connection_is_told_that_it_is_fenced() -> None:
    c = Coordinator()
    zombie = c.identity(c.init())
    c.identity(c.add(zombie, connection=1))
    newer = c.init()
    c.markers()
    producer = c.identity(newer)
    c.identity(c.add(producer, connection=2))
    late = c.end(zombie, version=1, commit=False, connection=1)
    assert c.code(late) is ErrorCode.PRODUCER_FENCED
    assert c.state is S.ONGOING
