"""Epochs in the coordinator's runtime: replies and the high watermark, lost leadership, markers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.system import SystemClock
from headwater.wire.epoch_values import EpochState, EpochStatus
from headwater_broker.coordinator.common.runtime import CoordinatorRuntime
from headwater_broker.coordinator.common.shard import Command
from headwater_broker.coordinator.transaction.epoch_values import (
    EpochReply,
    EpochRequest,
    JoinRequest,
)
from headwater_broker.coordinator.transaction.marker_sender import MarkerSender
from headwater_broker.coordinator.transaction.shard import TransactionShard
from headwater_broker.coordinator.transaction.sink_service import SinkService
from headwater_broker.coordinator.transaction.transaction import (
    ClientIdentity,
    Partition,
    Transaction,
)
from unit.coordinator.epoch_log import CONFIG, NEWER_RUN, TOPIC_ID, named, writer
from unit.coordinator.memory_log import MemoryLog
from unit.coordinator.test_marker_sender import Leaders


class Coordinator:
    """One broker's runtime, over a log that several brokers share."""

    def __init__(self, log: MemoryLog, leaders: Leaders) -> None:
        clock = SystemClock()
        self.log = log
        self.runtime: CoordinatorRuntime[TransactionShard] = CoordinatorRuntime(
            "t", lambda _: TransactionShard(CONFIG), log, clock, on_committed=self._committed
        )
        self.markers = MarkerSender(self.runtime, leaders, clock, pause_ms=lambda _: 1)
        service = SimpleNamespace(run=lambda _key, command: self.runtime.run(0, command))
        self.sinks = SinkService(cast(Any, service), CONFIG, cast(Any, None))
        self._fresh = 100

    def _committed(self, partition: int, epoch: int, shard: TransactionShard, end: int) -> None:
        self.markers.send(partition, epoch, shard, shard.take_markers_due(end))

    async def lead(self) -> None:
        self.runtime.on_leader(0, self.log.epoch)
        while not self.runtime.is_ready(0):
            await asyncio.sleep(0)

    async def close(self) -> None:
        await self.runtime.close()
        await self.markers.close()

    async def run(self, command: Command[TransactionShard]) -> EpochReply:
        reply = await self.runtime.run(0, command)
        assert isinstance(reply, EpochReply)
        return reply

    async def join(self, of: EpochRequest, task: int = 0, index: int = 0) -> EpochReply:
        self._fresh += 1
        partitions = {("flights", index): TOPIC_ID}
        request = JoinRequest(of, task, task, partitions, ClientIdentity(), self._fresh)
        return await self.run(lambda s, now, t: s.epochs.join(request, now, t))

    async def joined(self, of: EpochRequest, task: int = 0, index: int = 0) -> Transaction:
        participant = (await self.join(of, task, index)).participant
        assert participant is not None
        return participant

    async def commit(self, of: EpochRequest, *joined: Transaction) -> EpochReply:
        names = [named(task, one) for task, one in enumerate(joined)]
        return await self.run(
            lambda s, now, t: s.epochs.decide(of, names, EpochState.COMMITTING, now, t)
        )

    async def abort(self, of: EpochRequest) -> EpochReply:
        return await self.run(lambda s, now, t: s.epochs.abort(of, now, t))

    async def heartbeat(self, of: EpochRequest) -> EpochReply:
        return await self.run(lambda s, now, t: s.epochs.heartbeat(of, now, t))

    async def ticket(self) -> int:
        reply = await self.runtime.run(0, lambda s, _now, t: s.epochs.tickets.allocate(t))
        assert isinstance(reply, int)
        return reply


Story = Callable[[Coordinator, Leaders], Awaitable[None]]


def tell(story: Story) -> None:
    async def run() -> None:
        leaders = Leaders()
        leaders.leaders = {("flights", 0): 1, ("flights", 1): 2}
        coordinator = Coordinator(MemoryLog(), leaders)
        await coordinator.lead()
        try:
            await story(coordinator, leaders)
        finally:
            await coordinator.close()

    asyncio.run(asyncio.wait_for(run(), 30))


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def sent(leaders: Leaders) -> list[tuple[int, bool, Mapping[Partition, object]]]:
    """(broker, whether it commits, partitions) of every marker that was sent."""
    return [(b, m.commit, m.partitions) for b, markers in leaders.requests for m in markers]


def test_a_participant_and_a_decision_are_durable_before_anybody_hears_of_them() -> None:
    async def story(c: Coordinator, leaders: Leaders) -> None:
        c.log.is_held = True
        joining = asyncio.ensure_future(c.joined(writer()))
        await turns()
        assert not joining.done()
        c.log.release()
        one = await joining
        c.log.is_held = True
        committing = asyncio.ensure_future(c.commit(writer(), one))
        await turns()
        assert not committing.done()
        assert not leaders.requests, "no marker before the decision is committed"
        c.log.release()
        assert (await committing).is_complete
        assert [(b, commit) for b, commit, _ in sent(leaders)] == [(1, True)]

    tell(story)


def test_a_deposed_coordinator_gives_no_final_answer() -> None:
    async def story(c: Coordinator, leaders: Leaders) -> None:
        await c.commit(writer())
        one = await c.joined(writer(1, 3, NEWER_RUN))
        fenced, done, rewound = writer(1, 2), writer(0, 3, NEWER_RUN), writer(0, 3, NEWER_RUN)
        unknown = writer()._replace(sink="unknown")
        asks: Sequence[Callable[[], Awaitable[object]]] = (
            lambda: c.join(fenced),
            lambda: c.commit(fenced),
            lambda: c.abort(fenced),
            lambda: c.heartbeat(fenced),
            lambda: c.join(done),
            lambda: c.commit(rewound),
            lambda: c.commit(unknown, one),
            lambda: c.sinks.described("alerts"),
            c.ticket,
        )
        assert (await c.join(fenced)).status is EpochStatus.FENCED
        await c.ticket()
        for ask in asks:
            c.log.is_held = True  # its followers fetch from another leader already
            answer = asyncio.ensure_future(ask())
            await turns()
            assert not answer.done()
            c.log.depose()
            with pytest.raises(KafkaError) as refused:
                await answer
            assert refused.value.code is ErrorCode.NOT_COORDINATOR
            c.log.release()
            await c.lead()

    tell(story)


def test_a_successor_finishes_what_it_finds_half_written() -> None:
    async def story(c: Coordinator, leaders: Leaders) -> None:
        of = writer()
        one, two = await c.joined(of, 0, 0), await c.joined(of, 1, 1)
        leaders.down[2] = 1_000_000
        committing = asyncio.ensure_future(c.commit(of, one, two))
        while not any(broker == 2 for broker, _ in leaders.requests):
            await asyncio.sleep(0)
        c.log.depose()
        successor = Coordinator(c.log, leaders)
        await successor.lead()
        await c.close()
        with pytest.raises(KafkaError):
            await committing
        leaders.down.clear()
        assert (await successor.commit(of, one, two)).is_complete
        assert all(commit for _, commit, _ in sent(leaders))
        assert (await successor.join(of)).status is EpochStatus.COMMITTED
        await successor.close()

    tell(story)


def test_a_commit_of_unknown_outcome_is_asked_for_again() -> None:
    async def story(c: Coordinator, leaders: Leaders) -> None:
        of = writer()
        one = await c.joined(of)
        c.log.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is slow to answer")
        c.log.is_written_though_failed = True
        with pytest.raises(KafkaError) as unknown:
            await c.commit(of, one)
        assert unknown.value.code is ErrorCode.NOT_COORDINATOR
        await c.lead()
        assert (await c.commit(of, one)).status is EpochStatus.COMMITTED
        assert [commit for _, commit, _ in sent(leaders)] == [True]

    tell(story)


def test_a_completion_is_retried_until_enough_replicas_are_in_sync() -> None:
    async def story(c: Coordinator, leaders: Leaders) -> None:
        of = writer()
        one = await c.joined(of)
        leaders.gate = asyncio.Event()
        committing = asyncio.ensure_future(c.commit(of, one))
        while not leaders.requests:
            await asyncio.sleep(0)
        c.log.rejection = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "one of two")
        leaders.gate.set()
        await turns()
        assert not committing.done()
        c.log.rejection = None
        assert (await committing).is_complete

    tell(story)


def test_a_request_whose_record_is_refused_is_told_so() -> None:
    async def story(c: Coordinator, leaders: Leaders) -> None:
        of = writer()
        one = await c.joined(of)
        c.log.rejection = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "one of two")
        for ask in (lambda: c.commit(of, one), lambda: c.abort(of), lambda: c.join(of, 1)):
            with pytest.raises(KafkaError) as refused:
                await ask()
            assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        c.log.rejection = None
        assert (await c.heartbeat(of)).status is EpochStatus.OPEN
        assert (await c.commit(of, one)).is_complete

    tell(story)
