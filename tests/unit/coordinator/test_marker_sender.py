"""Markers of ended transactions: one request per leader and turn, sent until they are written."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from uuid import UUID

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.system import SystemClock
from headwater_broker.coordinator.common.runtime import CoordinatorRuntime
from headwater_broker.coordinator.transaction.config import TransactionConfig
from headwater_broker.coordinator.transaction.init_producer_id import ProducerInit
from headwater_broker.coordinator.transaction.marker_sender import MarkerSender, backoff_ms
from headwater_broker.coordinator.transaction.shard import TransactionShard
from headwater_broker.coordinator.transaction.states import TransactionState
from headwater_broker.coordinator.transaction.transaction import (
    Partition,
    ProducerIdentity,
)
from headwater_broker.replica.marker_writer import TransactionMarker
from unit.coordinator.memory_log import MemoryLog

E, S = ErrorCode, TransactionState
ONE, OTHER, FAR = ("flights", 0), ("flights", 1), ("weather", 0)
IDS = {"flights": UUID(int=1), "weather": UUID(int=2)}
EPOCH = 4


class Leaders:
    """Implements `MarkerTransport`: brokers 1 and 2, whose answers the test decides."""

    def __init__(self) -> None:
        self.leaders: dict[Partition, int] = {ONE: 1, OTHER: 1, FAR: 2}
        self.deleted: set[str] = set()
        self.answers: dict[Partition, list[ErrorCode]] = {}
        """What a partition answers, in turn; then NONE."""
        self.down: dict[int, int] = {}
        """Broker -> requests that it does not answer."""
        self.failure: Exception = ConnectionError("it is down")
        self.lookup_failures: list[Exception] = []
        self.requests: list[tuple[int, list[TransactionMarker]]] = []
        self.gate: asyncio.Event | None = None

    def leader(self, partition: Partition, topic_id: UUID) -> int | None:
        return self.leaders.get(partition) if topic_id == IDS[partition[0]] else None

    async def is_deleted(self, topic: str, topic_id: UUID) -> bool:
        if self.lookup_failures:
            raise self.lookup_failures.pop()
        return topic in self.deleted

    async def write(
        self, broker_id: int, markers: Sequence[TransactionMarker]
    ) -> list[Mapping[Partition, ErrorCode]]:
        self.requests.append((broker_id, list(markers)))
        if self.gate is not None:
            await self.gate.wait()
        if self.down.get(broker_id, 0):
            self.down[broker_id] -= 1
            raise self.failure
        return [{p: self._code(p) for p in marker.partitions} for marker in markers]

    def _code(self, partition: Partition) -> ErrorCode:
        answers = self.answers.get(partition)
        return answers.pop(0) if answers else E.NONE

    @property
    def sent(self) -> list[tuple[int, list[Partition]]]:
        """Requests, as (broker, partitions of all their markers)."""
        return [(b, [p for m in markers for p in m.partitions]) for b, markers in self.requests]


class Bench:
    def __init__(self, partitions_per_request: int = 100) -> None:
        self.log, self.leaders = MemoryLog(), Leaders()
        self.log.epoch = EPOCH
        clock = SystemClock()
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            "__transaction_state",
            lambda _: TransactionShard(TransactionConfig(completion_wait_ms=0)),
            self.log,
            clock,
            on_committed=self._committed,
        )
        self.sender = MarkerSender(
            self.runtime,
            self.leaders,
            clock,
            pause_ms=lambda _attempts: 0,
            partitions_per_request=partitions_per_request,
        )

    def _committed(
        self, partition: int, epoch: int, shard: TransactionShard, high_watermark: int
    ) -> None:
        due = shard.take_markers_due(high_watermark)
        self.sender.send(partition, epoch, shard, due)

    async def lead(self) -> None:
        self.runtime.on_leader(0, EPOCH)
        while not self.runtime.is_ready(0):
            await asyncio.sleep(0)

    async def begin(self, name: str, *partitions: Partition) -> ProducerIdentity:
        init = ProducerInit(transactional_id=name, timeout_ms=60_000, fresh_producer_id=7)
        producer = await self.runtime.run(0, lambda s, now, t: s.init_producer_id(init, now, t))
        assert isinstance(producer, ProducerIdentity)
        enlisted = {partition: IDS[partition[0]] for partition in partitions}
        await self.runtime.run(
            0, lambda s, now, t: s.add_partitions(name, producer, enlisted, now, t)
        )
        return producer

    async def end(self, name: str, producer: ProducerIdentity, *, commit: bool = True) -> None:
        await self.runtime.run(
            0,
            lambda s, now, t: s.end_transaction(
                name,
                producer,
                commit=commit,
                client_version=2,
                fresh_producer_id=-1,
                now=now,
                token=t,
            ),
        )

    async def ended(self, name: str, *partitions: Partition, commit: bool = True) -> None:
        await self.end(name, await self.begin(name, *partitions), commit=commit)

    async def settled(self) -> None:
        while any(self.sender.pending) or self.is_preparing():
            await asyncio.sleep(0)

    def is_preparing(self) -> bool:
        return any(
            known.state.is_preparing
            for shard in self.runtime.shards
            for known in shard.transactions.values()
        )

    def state(self, name: str = "t") -> S:
        return self.runtime.shards[0].transactions[name].state


def play(story: Callable[[Bench], Awaitable[None]], *, partitions_per_request: int = 100) -> None:
    async def run() -> None:
        bench = Bench(partitions_per_request)
        await bench.lead()
        await story(bench)
        await bench.sender.close()
        await bench.runtime.close()

    asyncio.run(asyncio.wait_for(run(), 20))


def test_each_leader_gets_one_request_and_the_transaction_completes() -> None:
    async def story(b: Bench) -> None:
        await b.ended("t", ONE, OTHER, FAR)
        await b.settled()
        assert sorted(b.leaders.sent) == [(1, [ONE, OTHER]), (2, [FAR])]
        [marker] = b.leaders.requests[0][1]
        assert (marker.producer_id, marker.producer_epoch, marker.commit) == (7, 1, True)
        assert (marker.coordinator_epoch, marker.transaction_version) == (EPOCH, 2)
        assert marker.partitions[ONE] == IDS["flights"]
        assert b.state() is S.COMPLETE_COMMIT
        assert b.sender.totals == (3, 0, 0)

    play(story)


def test_transactions_that_end_in_the_same_turn_share_a_request() -> None:
    async def story(b: Bench) -> None:
        names = ("a", "b", "c")
        producers = {name: await b.begin(name, ONE) for name in names}
        await asyncio.gather(*(b.end(name, producer) for name, producer in producers.items()))
        await b.settled()
        [(broker_id, markers)] = b.leaders.requests
        assert (broker_id, len(markers)) == (1, 3)

    play(story)


def test_nothing_is_sent_before_the_outcome_is_committed() -> None:
    async def story(b: Bench) -> None:
        producer = await b.begin("t", ONE)
        b.log.is_held = True
        ending = asyncio.ensure_future(b.end("t", producer, commit=False))
        for _ in range(5):
            await asyncio.sleep(0)
        assert b.state() is S.PREPARE_ABORT and b.leaders.requests == []
        b.log.release()
        await ending
        await b.settled()
        assert [marker.commit for _, [marker] in b.leaders.requests] == [False]
        assert b.state() is S.COMPLETE_ABORT

    play(story)


def test_a_transaction_without_partitions_completes_without_a_marker() -> None:
    async def story(b: Bench) -> None:
        init = ProducerInit(transactional_id="t", timeout_ms=60_000, fresh_producer_id=7)
        producer = await b.runtime.run(0, lambda s, now, t: s.init_producer_id(init, now, t))
        assert isinstance(producer, ProducerIdentity)
        await b.end("t", producer, commit=False)
        await b.settled()
        assert b.leaders.requests == [] and b.state() is S.COMPLETE_ABORT

    play(story)


def test_only_what_failed_is_sent_again_and_to_its_present_leader() -> None:
    async def story(b: Bench) -> None:
        b.leaders.answers[OTHER] = [E.NOT_LEADER_OR_FOLLOWER]
        b.leaders.gate = asyncio.Event()
        await b.ended("t", ONE, OTHER)
        while not b.leaders.requests:
            await asyncio.sleep(0)
        b.leaders.leaders[OTHER] = 2
        b.leaders.gate.set()
        await b.settled()
        assert b.leaders.sent == [(1, [ONE, OTHER]), (2, [OTHER])]
        assert b.state() is S.COMPLETE_COMMIT

    play(story)


def test_a_broker_that_does_not_answer_is_asked_until_it_does() -> None:
    async def story(b: Bench) -> None:
        b.leaders.down[2] = 5
        await b.ended("t", ONE, FAR)
        while b.leaders.down[2]:
            await asyncio.sleep(0)
        pending = b.sender.of("t")
        assert pending is not None and set(pending.missing) == {FAR}
        failure = pending.failures[FAR]
        assert failure.code is E.NETWORK_EXCEPTION
        assert failure.attempts >= 4 and "it is down" in failure.detail
        await b.settled()
        assert b.sender.totals == (2, 5, 0)
        assert b.sender.of("t") is None

    play(story)


def test_an_unforeseen_error_is_logged_and_the_markers_are_sent_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(b: Bench) -> None:
        b.leaders.failure, b.leaders.down = ZeroDivisionError("a bug"), {1: 2}
        b.leaders.lookup_failures = [ZeroDivisionError("another")]
        del b.leaders.leaders[FAR]
        await b.ended("t", ONE, FAR)
        while (pending := b.sender.of("t")) is None or ONE in pending.missing:
            await asyncio.sleep(0)
        while b.leaders.lookup_failures:
            await asyncio.sleep(0)
        b.leaders.leaders[FAR] = 2
        await b.settled()
        assert b.state() is S.COMPLETE_COMMIT

    play(story)
    assert "a bug" in caplog.text and "another" in caplog.text


def test_a_newer_epoch_at_the_partition_is_an_alarm_and_counts_as_written(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(b: Bench) -> None:
        b.leaders.answers[ONE] = [E.INVALID_PRODUCER_EPOCH]
        await b.ended("t", ONE)
        await b.settled()
        assert b.state() is S.COMPLETE_COMMIT
        assert b.sender.totals.stale_epochs == 1

    play(story)
    assert "knows a newer epoch" in caplog.text


def test_a_newer_coordinator_ends_this_one() -> None:
    async def story(b: Bench) -> None:
        b.leaders.answers[ONE] = [E.TRANSACTION_COORDINATOR_FENCED]
        await b.ended("t", ONE)
        while b.runtime.is_hosted(0):
            await asyncio.sleep(0)
        with pytest.raises(KafkaError) as refused:
            await b.end("t", ProducerIdentity(7, 1))
        assert refused.value.code is E.NOT_COORDINATOR
        assert len(b.leaders.requests) == 1, "it does not try again"

    play(story)


def test_a_deleted_topic_needs_no_marker_but_one_without_leader_is_waited_for() -> None:
    async def story(b: Bench) -> None:
        del b.leaders.leaders[FAR], b.leaders.leaders[ONE]
        b.leaders.deleted.add("weather")
        await b.ended("t", ONE, FAR)
        while (pending := b.sender.of("t")) is None or FAR in pending.missing:
            await asyncio.sleep(0)
        assert set(pending.missing) == {ONE}
        assert b.state() is S.PREPARE_COMMIT
        while ONE not in pending.failures:
            await asyncio.sleep(0)
        assert pending.failures[ONE].code is E.LEADER_NOT_AVAILABLE
        b.leaders.leaders[ONE] = 2
        await b.settled()
        assert b.leaders.sent == [(2, [ONE])]

    play(story)


def test_a_load_sends_all_markers_again() -> None:
    async def story(b: Bench) -> None:
        b.leaders.gate = asyncio.Event()
        await b.ended("t", ONE, FAR)
        while len(b.leaders.requests) < 2:
            await asyncio.sleep(0)
        b.runtime.on_resign(0)
        b.leaders.gate.set()
        while any(b.sender.pending):
            await asyncio.sleep(0)
        b.leaders.requests.clear()
        await b.lead()
        assert b.state() is S.PREPARE_COMMIT, "answers to the former shard count for nothing"
        await b.settled()
        assert sorted(b.leaders.sent) == [(1, [ONE]), (2, [FAR])]
        assert b.state() is S.COMPLETE_COMMIT

    play(story)


def test_a_completion_that_is_refused_is_stored_later() -> None:
    async def story(b: Bench) -> None:
        b.leaders.gate = asyncio.Event()
        await b.ended("t", ONE)
        while not b.leaders.requests:
            await asyncio.sleep(0)
        b.log.rejection = KafkaError(E.NOT_ENOUGH_REPLICAS, "one is gone")
        b.leaders.gate.set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert b.state() is S.PREPARE_COMMIT and len(b.leaders.requests) == 1
        b.log.rejection = None
        await b.settled()
        assert b.state() is S.COMPLETE_COMMIT

    play(story)


def test_a_completion_that_ends_with_its_shard_is_not_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(b: Bench) -> None:
        b.leaders.gate = asyncio.Event()
        await b.ended("t", ONE)
        while not b.leaders.requests:
            await asyncio.sleep(0)
        following = ProducerIdentity(7, 1)
        waits = asyncio.ensure_future(
            b.runtime.run(
                0,
                lambda s, now, t: s.add_partitions("t", following, {FAR: IDS["weather"]}, now, t),
            )
        )  # so the completion needs a record
        await asyncio.sleep(0)
        b.log.is_held = True
        b.leaders.gate.set()
        while b.runtime.shards[0].transactions["t"].state is not S.ONGOING:
            await asyncio.sleep(0)
        with caplog.at_level("INFO"):
            b.runtime.on_resign(0)
            with pytest.raises(KafkaError):
                await waits
        assert not any("not stored yet" in line for line in caplog.messages)
        assert not any(b.sender.pending)

    play(story)


def test_the_next_transaction_may_end_while_the_completion_is_not_committed_yet() -> None:
    async def story(b: Bench) -> None:
        b.leaders.gate = asyncio.Event()
        await b.ended("t", ONE)
        while not b.leaders.requests:
            await asyncio.sleep(0)
        b.log.is_held = True
        b.leaders.gate.set()
        while b.state() is not S.COMPLETE_COMMIT:
            await asyncio.sleep(0)
        second = ProducerIdentity(7, 1)
        adds = asyncio.ensure_future(
            b.runtime.run(
                0,
                lambda s, now, t: s.add_partitions("t", second, {FAR: IDS["weather"]}, now, t),
            )
        )
        ends = asyncio.ensure_future(b.end("t", second))
        await asyncio.sleep(0)
        b.log.release()
        await asyncio.gather(adds, ends)
        await b.settled()
        assert b.leaders.sent == [(1, [ONE]), (2, [FAR])]
        assert b.state() is S.COMPLETE_COMMIT

    play(story)


def test_a_large_turn_is_several_requests() -> None:
    async def story(b: Bench) -> None:
        producers = {name: await b.begin(name, ONE) for name in "abcde"}
        await asyncio.gather(*(b.end(name, producer) for name, producer in producers.items()))
        await b.settled()
        assert [len(markers) for _, markers in b.leaders.requests] == [2, 2, 1]

    play(story, partitions_per_request=2)


def test_pauses_grow_to_a_second() -> None:
    pauses = [backoff_ms(attempts) for attempts in (1, 2, 3, 6, 7, 1_000)]
    assert pauses == [20, 40, 80, 640, 1_000, 1_000]
