"""Markers of a call: one append per partition, an answer once replicated, a code per partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.topic_names import OFFSETS_TOPIC
from headwater_broker.log.results import AppendOrigin, AppendResult
from headwater_broker.replica.append_service import AppendService
from headwater_broker.replica.marker_writer import MarkerWriter, TransactionMarker
from headwater_broker.replica.partition import Partition
from solo_broker import SoloBroker
from unit.log.harness import batch

NO_ID = UUID(int=0)
FOLLOWED = {"replicas": (1, 2), "isr": (1, 2)}


def marker(
    pid: int,
    *partitions: tuple[str, int],
    epoch: int = 1,
    commit: bool = True,
    coordinator: int = 0,
    version: int = 2,
    topic_id: UUID = NO_ID,
) -> TransactionMarker:
    return TransactionMarker(
        pid, epoch, commit, coordinator, version, dict.fromkeys(partitions or (("t", 0),), topic_id)
    )


class Bench:
    """A broker that leads "t", and how often it appended."""

    def __init__(self, broker: SoloBroker) -> None:
        self.broker = broker
        services = broker.services
        self.writer = services.markers
        self.appends: AppendService = services.appends

    @property
    def log_end(self) -> int:
        return self.broker.replicas.lookup("t", 0).log.log_end_offset

    def begin(self, pid: int, *, topic: str = "t", epoch: int = 0, sequence: int = 0) -> None:
        now_ms = self.broker.services.clock.now_ms()
        data = batch(
            producer_id=pid, epoch=epoch, sequence=sequence, transactional=True, timestamp=now_ms
        )
        partition = self.broker.replicas.lookup(topic, 0)
        partition.append(data, 1, now_ms, AppendOrigin.COORDINATOR)

    def replicate(self, topic: str = "t") -> None:
        """Follower 2 has fetched all."""
        partition = self.broker.replicas.lookup(topic, 0)
        now = self.broker.services.clock.monotonic()
        partition.update_follower(2, 7, partition.log.log_end_offset, now)

    def writer_of(self, timeout_ms: int, **coordinators: object) -> MarkerWriter:
        services = self.broker.services
        return MarkerWriter(
            services.replicas, services.appends, services.clock,
            coordinators, timeout_ms=timeout_ms,  # type: ignore[arg-type]
        )  # fmt: skip


def play(tmp_path: Path, story: Callable[[Bench], Awaitable[None]], **topic: object) -> None:
    async def run() -> None:
        async with SoloBroker(tmp_path) as broker:
            broker.create_topic("t", **topic)  # type: ignore[arg-type]
            await story(Bench(broker))

    asyncio.run(asyncio.wait_for(run(), 30))


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_markers_of_a_call_are_one_append_per_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(b: Bench) -> None:
        b.broker.create_topic("u")
        for pid in range(20):
            b.begin(pid)
            b.begin(pid, topic="u")
        appended: list[tuple[str, int]] = []
        real = Partition.append

        def counted(self: Partition, data: memoryview, *more: Any) -> AppendResult:
            appended.append((self.topic, len(data) // 78))
            return real(self, data, *more)

        monkeypatch.setattr(Partition, "append", counted)
        found = await b.writer.write([marker(pid, ("t", 0), ("u", 0)) for pid in range(20)])
        assert found == [{("t", 0): ErrorCode.NONE, ("u", 0): ErrorCode.NONE}] * 20
        assert appended == [("t", 20), ("u", 20)]
        assert b.log_end == 40
        assert b.broker.replicas.lookup("t", 0).last_stable_offset == 40

    play(tmp_path, story)


def test_each_partition_has_its_own_code(tmp_path: Path) -> None:
    async def story(b: Bench) -> None:
        b.broker.create_topic("gone")
        b.broker.move_away("gone")
        b.begin(1)
        b.begin(2, epoch=9)
        wrong_id = marker(3, topic_id=UUID(int=5))
        right_id = marker(4, topic_id=b.broker.view.topics["t"].topic_id)
        found = await b.writer.write(
            [marker(1, ("t", 0), ("t", 7), ("gone", 0), ("none", 0)), marker(2), wrong_id, right_id]
        )
        assert found == [
            {
                ("t", 0): ErrorCode.NONE,
                ("t", 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("gone", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            },
            {("t", 0): ErrorCode.INVALID_PRODUCER_EPOCH},
            {("t", 0): ErrorCode.INCONSISTENT_TOPIC_ID},
            {("t", 0): ErrorCode.NONE},
        ]
        older = await b.writer.write([marker(1, epoch=2, coordinator=-1)])
        assert older == [{("t", 0): ErrorCode.TRANSACTION_COORDINATOR_FENCED}]

    play(tmp_path, story)


def test_an_append_that_is_refused_refuses_all_markers_of_the_partition(tmp_path: Path) -> None:
    async def story(b: Bench) -> None:
        found = await b.writer.write([marker(1), marker(2)])
        assert found == [{("t", 0): ErrorCode.NOT_ENOUGH_REPLICAS}] * 2
        assert b.log_end == 0
        b.broker.create_topic("t", leader=2, epoch=3, **FOLLOWED)
        found = await b.writer.write([marker(1)])
        assert found == [{("t", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}]

    play(tmp_path, story, replicas=(1, 2), isr=(1,), configs={"min.insync.replicas": "2"})


def test_a_marker_is_answered_when_the_high_watermark_has_passed_it(tmp_path: Path) -> None:
    async def story(b: Bench) -> None:
        b.begin(1)
        first = asyncio.ensure_future(b.writer.write([marker(1)]))
        await turns()
        again = asyncio.ensure_future(b.writer.write([marker(1)]))
        await turns()
        assert not first.done() and not again.done(), "neither is replicated"
        assert b.log_end == 2, "the repeated one writes nothing"
        b.replicate()
        assert await first == await again == [{("t", 0): ErrorCode.NONE}]

    play(tmp_path, story, **FOLLOWED)


def test_a_repeated_marker_waits_for_the_log_end_that_it_saw(tmp_path: Path) -> None:
    """A marker that only this leader has may be lost with it: NONE would end the retries."""

    async def story(b: Bench) -> None:
        b.begin(1)
        work = asyncio.ensure_future(b.writer.write([marker(1)]))
        await turns()
        again = asyncio.ensure_future(b.writer.write([marker(1)]))
        await turns()
        b.broker.create_topic("t", leader=2, epoch=3, **FOLLOWED)
        lost = [{("t", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}]
        assert await work == await again == lost

    play(tmp_path, story, **FOLLOWED)


def test_what_is_not_replicated_in_time_is_sent_again(tmp_path: Path) -> None:
    async def story(b: Bench) -> None:
        b.begin(1)
        found = await b.writer_of(1).write([marker(1)])
        assert found == [{("t", 0): ErrorCode.REQUEST_TIMED_OUT}]

    play(tmp_path, story, **FOLLOWED)


def test_two_markers_of_a_producer_are_checked_one_after_the_other(tmp_path: Path) -> None:
    async def story(b: Bench) -> None:
        b.begin(1)
        found = await b.writer.write([marker(1), marker(1), marker(1, epoch=0), marker(1, epoch=2)])
        codes = [row["t", 0] for row in found]
        none, fenced = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH
        assert codes == [none, none, fenced, none]
        assert b.log_end == 3

    play(tmp_path, story)


class Runtime:
    """`CoordinatorRuntime.end_transaction` of a fake coordinator."""

    def __init__(self, error: KafkaError | None = None) -> None:
        self.error = error
        self.replayed: list[tuple[object, ...]] = []
        self.may_end = asyncio.Event()

    async def __call__(self, *transaction: int, commit: bool) -> None:
        if self.error is not None:
            raise self.error
        self.replayed.append((*transaction, commit))
        await self.may_end.wait()


def test_a_coordinators_partition_is_written_through_its_runtime(tmp_path: Path) -> None:
    async def story(b: Bench) -> None:
        b.broker.create_topic(OFFSETS_TOPIC)
        runtime = Runtime()
        writer = b.writer_of(1000, **{OFFSETS_TOPIC: runtime})
        keys = ((OFFSETS_TOPIC, 0), ("t", 0))
        b.begin(1, topic=OFFSETS_TOPIC)
        work = asyncio.ensure_future(writer.write([marker(1, *keys), marker(2, *keys)]))
        await turns()
        assert runtime.replayed == [(0, 1, 1, 0, True), (0, 2, 1, 0, True)]
        assert not work.done(), "answered after the replay only (KAFKA-17507)"
        runtime.may_end.set()
        assert await work == [dict.fromkeys(keys, ErrorCode.NONE)] * 2

    play(tmp_path, story)


def test_a_coordinators_partition_has_the_same_rules(tmp_path: Path) -> None:
    async def story(b: Bench) -> None:
        b.broker.create_topic(OFFSETS_TOPIC)
        runtime = Runtime()
        runtime.may_end.set()
        writer = b.writer_of(1000, **{OFFSETS_TOPIC: runtime})
        key = (OFFSETS_TOPIC, 0)
        b.begin(1, topic=OFFSETS_TOPIC, epoch=3)
        found = await writer.write(
            [marker(1, key, epoch=3), marker(1, key, epoch=2), marker(2, key, topic_id=UUID(int=9))]
        )
        assert [row[key] for row in found] == [
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INVALID_PRODUCER_EPOCH,
            ErrorCode.INCONSISTENT_TOPIC_ID,
        ]
        assert runtime.replayed == []
        for code in (
            "NOT_COORDINATOR",
            "COORDINATOR_LOAD_IN_PROGRESS",
            "COORDINATOR_NOT_AVAILABLE",
        ):
            runtime.error = KafkaError(ErrorCode[code], "not here")
            found = await writer.write([marker(1, key, epoch=4)])
            assert found == [{key: ErrorCode.NOT_LEADER_OR_FOLLOWER}], "the sender tries again"
        runtime.error = KafkaError(ErrorCode.TRANSACTION_COORDINATOR_FENCED, "older")
        found = await writer.write([marker(1, key, epoch=4)])
        assert found == [{key: ErrorCode.TRANSACTION_COORDINATOR_FENCED}]

    play(tmp_path, story)


class Asked:
    """A guard whose answer never comes."""

    def verify(self, partition: object, data: memoryview) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()

    def queued(self, partition: object, data: memoryview) -> None:
        """Let it wait."""

    def recheck(self, partition: object, data: memoryview) -> None:
        """Let it be appended."""


@pytest.mark.parametrize(
    ("version", "dropped"),
    [
        (2, {0: ErrorCode.INVALID_PRODUCER_EPOCH}),
        (1, {0: ErrorCode.INVALID_PRODUCER_EPOCH, 1: ErrorCode.INVALID_TXN_STATE}),
    ],
)
def test_a_marker_drops_what_waits_of_its_transaction(
    tmp_path: Path, version: int, dropped: dict[int, ErrorCode]
) -> None:
    """A batch whose verification is answered late must not follow its marker (KAFKA-14053)."""

    async def story(b: Bench) -> None:
        partition = b.broker.replicas.lookup("t", 0)
        outcomes: dict[int, ErrorCode] = {}

        def deliver(epoch: int) -> Callable[[object], None]:
            return lambda outcome: outcomes.update({epoch: outcome.code})  # type: ignore[attr-defined]

        for epoch in (0, 1, 2):
            data = batch(producer_id=1, epoch=epoch, sequence=0, transactional=True)
            b.appends.append_guarded(partition, data, Asked(), deliver(epoch), acks=1)
        await b.writer.write([marker(1, version=version, commit=False)])
        await turns()
        assert outcomes == dropped
        await b.appends.close()

    play(tmp_path, story)


@pytest.mark.parametrize("role", ["sole", "leader", "follower"])
def test_ended_transactions_are_forgotten_though_nobody_reads(tmp_path: Path, role: str) -> None:
    """A list of them that only a consumer's fetch shortens would grow for ever on a follower."""

    async def story(b: Bench) -> None:
        partition = b.broker.replicas.lookup("t", 0)
        for pid in range(3):
            b.begin(pid)
        work = asyncio.ensure_future(b.writer.write([marker(pid) for pid in range(3)]))
        await turns()
        if role == "leader":
            b.replicate()
        if role == "follower":
            log = partition.log
            part = log.read(0, 1 << 20, log.log_end_offset)
            data = memoryview(bytes(part.file.read_at(part.position, part.size_bytes)))
            b.broker.create_topic("t", leader=2, epoch=3, **FOLLOWED)  # type: ignore[arg-type]
            log.truncate_fully_and_start_at(0)
            partition.append_as_follower(data, 6, 0)
        else:
            await work
        assert partition.log.log_end_offset == partition.high_watermark == 6
        assert partition.log.producers.all_decided
        await asyncio.gather(work)

    topic: dict[str, object] = {} if role == "sole" else dict(FOLLOWED)
    play(tmp_path, story, **topic)
