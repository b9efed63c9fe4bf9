"""The fetch loop against a leader in memory that speaks the real bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.system import SystemClock
from headwater.testing.clocks import SeededEntropy
from headwater.wire.apis.k01_fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headwater.wire.control import PartitionState
from headwater.wire.headers import RequestHeader, ResponseHeader
from headwater.wire.schema import decoder, encode
from headwater_broker.quota.rate import Windows
from headwater_broker.replica.fetcher import Fetcher, FetcherPorts
from headwater_broker.replica.follower import FetchSession, Reaction, pause_ms, reaction
from headwater_broker.replica.follower_fetch_codec import FETCH_VERSION
from headwater_broker.replica.partition import Partition
from headwater_broker.replica.replication_config import ReplicationConfig
from headwater_broker.replica.replication_quota import ReplicationQuotas
from unit.replica.fake_log import TOPIC_ID, FakeLog, make_batch

LIMITS = ReplicationConfig(fetch_wait_max_ms=200, fetch_backoff_ms=100)


def open_partition(broker_id: int, partition: int = 0, log: FakeLog | None = None) -> Partition:
    return Partition(
        log or FakeLog(partition=partition),  # type: ignore[arg-type]
        broker_id,
        SystemClock(),
        LIMITS,
        high_watermark=0,
        propose=lambda p: None,
    )


def state(partition: int = 0, **kw: Any) -> PartitionState:
    kw = {"leader_id": 1, "leader_epoch": 3, "partition_epoch": 0, **kw}
    return PartitionState(
        topic="t", topic_id=TOPIC_ID, partition=partition, isr=(1, 2), replicas=(1, 2), **kw
    )


class MemoryLeader:
    """Broker 1 behind a connection: fetch sessions, parking, epochs."""

    def __init__(self) -> None:
        self.partitions: dict[int, Partition] = {}
        self.sessions: dict[int, dict[int, Any]] = {}
        self.requests: list[FetchRequest] = []
        self.connections = 0
        self.is_up = True
        self.error: ErrorCode = ErrorCode.NONE
        self.refusal: ErrorCode = ErrorCode.NONE
        self.moved = asyncio.Event()
        self.told: dict[int, int] = {}
        self.open: set[MemoryConnection] = set()

    def lead(self, partition: int = 0) -> Partition:
        hosted = open_partition(1, partition)
        hosted.become_leader(state(partition), 1)
        hosted.on_append = lambda p: self.moved.set()
        self.partitions[partition] = hosted
        return hosted

    async def connect(self, host: str, port: int) -> MemoryConnection:
        if not self.is_up:
            raise ConnectionRefusedError(f"{host}:{port}")
        self.connections += 1
        connection = MemoryConnection(self)
        self.open.add(connection)
        return connection

    def die(self) -> None:
        self.is_up = False
        for connection in list(self.open):
            connection.close()

    async def answer(self, request: FetchRequest) -> FetchResponse:
        self.requests.append(request)
        if self.refusal is not ErrorCode.NONE:
            return FetchResponse(error_code=self.refusal)
        error, session_id = ErrorCode.NONE, request.session_id
        if request.session_epoch == 0:
            self.sessions.pop(session_id, None)
            session_id = 100 + len(self.requests)
            self.sessions[session_id] = {}
            self.told.clear()
        elif session_id not in self.sessions:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        items = self.sessions[session_id]
        for topic in request.topics:
            items.update({row.partition: row for row in topic.partitions})
        for gone in request.forgotten_topics_data:
            for partition in gone.partitions:
                del items[partition]
        rows = [self.read(row, request, first=True) for row in items.values()]
        if not any(self.is_urgent(row) for row in rows):
            self.moved.clear()
            try:
                await asyncio.wait_for(self.moved.wait(), request.max_wait_ms / 1000)
            except TimeoutError:
                pass
            rows = [self.read(row, request, first=False) for row in items.values()]
        named = [
            row
            for row in rows
            if self.is_urgent(row) or row.high_watermark != self.told.get(row.partition_index)
        ]
        self.told.update({row.partition_index: row.high_watermark for row in rows})
        return FetchResponse(
            error_code=error,
            session_id=session_id,
            responses=(FetchableTopicResponse(topic_id=TOPIC_ID, partitions=tuple(named)),),
        )

    @staticmethod
    def is_urgent(row: PartitionData) -> bool:
        return bool(row.records or row.error_code or row.diverging_epoch.epoch >= 0)

    def read(self, row: Any, request: FetchRequest, *, first: bool) -> PartitionData:
        index = row.partition
        try:
            if self.error is not ErrorCode.NONE:
                raise KafkaError(self.error)
            if index not in self.partitions:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            hosted = self.partitions[index]
            hosted.check_leader_epoch(row.current_leader_epoch)
            parted = None
            if first:
                who = request.replica_state
                parted = hosted.update_follower(
                    who.replica_id, who.replica_epoch, row.fetch_offset,
                    SystemClock().monotonic(), last_fetched_epoch=row.last_fetched_epoch,
                )  # fmt: skip
            if parted is not None:
                return PartitionData(
                    partition_index=index, error_code=0, high_watermark=-1,
                    diverging_epoch=EpochEndOffset(epoch=parted.epoch, end_offset=parted[1]),
                )  # fmt: skip
            piece = hosted.read(row.fetch_offset, 10_000, replica=2)
        except KafkaError as refused:
            return PartitionData(partition_index=index, error_code=refused.code, high_watermark=-1)
        return PartitionData(
            partition_index=index, error_code=0, high_watermark=hosted.high_watermark,
            log_start_offset=0, records=piece.file.read_at(piece.position, piece.size_bytes),
        )  # fmt: skip


class MemoryConnection:
    def __init__(self, leader: MemoryLeader) -> None:
        self.leader = leader
        self.closed = asyncio.get_running_loop().create_future()

    async def request(self, body: bytes) -> memoryview:
        header, at = decoder(RequestHeader, 2)(body)
        request, _ = decoder(FetchRequest, FETCH_VERSION)(body, at)
        answer = asyncio.ensure_future(self.leader.answer(request))
        await asyncio.wait({answer, self.closed}, return_when=asyncio.FIRST_COMPLETED)
        if self.closed.done():
            answer.cancel()
            raise ConnectionError("closed")
        head = encode(ResponseHeader(correlation_id=header.correlation_id), 1)
        return memoryview(head + encode(answer.result(), FETCH_VERSION))

    def close(self) -> None:
        self.leader.open.discard(self)
        if not self.closed.done():
            self.closed.set_result(None)


class Rig:
    """A leader, a follower with its fetch loop, and what the loop told."""

    def __init__(self) -> None:
        self.leader = MemoryLeader()
        self.gone: list[int] = []
        self.recovered: list[Reaction] = []
        self.fetcher = Fetcher(1, LIMITS, self.ports())

    def ports(self) -> FetcherPorts:
        async def recover(partition: Partition, _c: Any, what: Reaction, leader: int) -> None:
            self.recovered.append(what)

        return FetcherPorts(
            broker_id=2,
            broker_epoch=lambda: 9,
            cluster_id=lambda: "c",
            clock=SystemClock(),
            entropy=SeededEntropy(),
            connect=self.leader.connect,
            endpoint=lambda broker_id: ("h", 1),
            on_peer_gone=self.gone.append,
            recover=recover,
            quota=ReplicationQuotas(2, SystemClock(), Windows(), Windows()).follower,
        )

    def follow(self, partition: int = 0, *, log: FakeLog | None = None, **kw: Any) -> Partition:
        mine = open_partition(2, partition, log)
        mine.become_follower(state(partition, **kw))
        self.fetcher.follow([mine])
        return mine


def run(story: Callable[[Rig], Awaitable[None]]) -> None:
    async def main() -> None:
        rig = Rig()
        try:
            await asyncio.wait_for(story(rig), 10)
        finally:
            await rig.fetcher.close()

    asyncio.run(main())


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0)  # lets the loop turn; no time passes here


def test_a_follower_follows_and_its_next_fetch_commits() -> None:
    async def story(rig: Rig) -> None:
        leader, mine = rig.leader.lead(), rig.follow()
        for i in range(20):
            leader.append(make_batch(str(i).encode()), -1, 0)
            await until(lambda i=i: leader.high_watermark == i + 1)  # type: ignore[misc]
        assert mine.log.offsets() == leader.log.offsets()  # type: ignore[attr-defined]
        assert rig.leader.connections == 1
        named = [len(r.topics) for r in rig.leader.requests]
        assert rig.leader.requests[0].session_epoch == 0
        assert all(r.session_epoch == n for n, r in enumerate(rig.leader.requests[1:], 1)), named
        assert rig.leader.requests[0].replica_state.replica_epoch == 9

    run(story)


def test_a_new_partition_does_not_wait_for_a_parked_fetch() -> None:
    async def story(rig: Rig) -> None:
        rig.leader.lead(0)
        rig.follow(0)
        await until(lambda: bool(rig.leader.requests))
        other = rig.leader.lead(1)
        other.append(make_batch(), -1, 0)
        began = SystemClock().monotonic()
        rig.follow(1)
        await until(lambda: other.high_watermark == 1)
        assert SystemClock().monotonic() - began < LIMITS.fetch_wait_max_ms / 1000 / 2

    run(story)


def test_partitions_added_in_a_row_drop_the_connection_once() -> None:
    async def story(rig: Rig) -> None:
        rig.leader.lead(0)
        rig.follow(0)
        await until(lambda: bool(rig.leader.requests))
        others = [rig.leader.lead(index) for index in range(1, 20)]
        for index, other in enumerate(others, start=1):
            other.append(make_batch(), -1, 0)
            rig.follow(index)
            for _ in range(10):  # a fetch may be sent and parked in between
                await asyncio.sleep(0)
        assert rig.leader.connections <= 3
        await until(lambda: all(other.high_watermark == 1 for other in others))

    run(story)


def test_a_leader_that_has_not_heard_of_its_role_is_asked_again() -> None:
    async def story(rig: Rig) -> None:
        mine = rig.follow()
        await until(lambda: len(rig.leader.requests) >= 3)
        leader = rig.leader.lead()
        leader.append(make_batch(), -1, 0)
        await until(lambda: mine.log.log_end_offset == 1)

    run(story)


def test_a_divergent_suffix_is_cut_over_several_epochs() -> None:
    async def story(rig: Rig) -> None:
        leader, mine = rig.leader.lead(), open_partition(2)
        theirs, ours = leader.log, mine.log
        theirs.truncate_fully_and_start_at(0)
        for epoch, log in ((0, theirs), (0, ours), (1, ours), (1, ours), (2, ours)):
            view = make_batch(f"{epoch}".encode())
            log.append_as_leader(view, epoch, 0)
            log.assign_epoch_start(epoch, log.log_end_offset - 1)
        theirs.assign_epoch_start(3, 1)
        theirs.append_as_leader(make_batch(b"new"), 3, 0)
        mine.become_follower(state())
        rig.fetcher.follow([mine])
        await until(lambda: ours.offsets() == theirs.offsets())  # type: ignore[attr-defined]
        assert ours.epochs.entries == [(0, 0), (3, 1)]

    run(story)


def test_an_empty_epoch_of_a_deposed_leader_does_not_loop() -> None:
    async def story(rig: Rig) -> None:
        leader, mine = rig.leader.lead(), open_partition(2)
        leader.log.truncate_fully_and_start_at(0)
        mine.log.assign_epoch_start(1, 0)
        leader.log.assign_epoch_start(0, 0)
        leader.log.append_as_leader(make_batch(b"a"), 0, 0)
        leader.log.assign_epoch_start(3, 1)
        mine.become_follower(state())
        rig.fetcher.follow([mine])
        await until(lambda: mine.log.log_end_offset == 1)
        assert len(rig.leader.requests) < 10

    run(story)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ErrorCode.OFFSET_OUT_OF_RANGE, Reaction.FIND_RANGE),
        (ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, Reaction.START_AT_LOCAL),
    ],
)
def test_offsets_the_leader_refuses_are_recovered(error: ErrorCode, expected: Reaction) -> None:
    async def story(rig: Rig) -> None:
        rig.leader.lead()
        rig.leader.error = error
        rig.follow()
        await until(lambda: bool(rig.recovered))
        assert rig.recovered[0] is expected

    run(story)


def test_a_lost_session_is_opened_again() -> None:
    async def story(rig: Rig) -> None:
        leader, mine = rig.leader.lead(), rig.follow()
        await until(lambda: bool(rig.leader.sessions))
        rig.leader.sessions.clear()
        rig.leader.moved.set()
        leader.append(make_batch(), -1, 0)
        await until(lambda: mine.log.log_end_offset == 1)

    run(story)


def test_a_leader_that_refuses_whole_fetches_is_asked_ever_more_rarely() -> None:
    async def story(rig: Rig) -> None:
        rig.leader.refusal = ErrorCode.UNKNOWN_SERVER_ERROR
        leader, mine = rig.leader.lead(), rig.follow()
        await asyncio.sleep(0.3)
        assert 2 <= len(rig.leader.requests) <= 20
        rig.leader.refusal = ErrorCode.NONE
        leader.append(make_batch(), -1, 0)
        await until(lambda: mine.log.log_end_offset == 1)

    run(story)


def test_a_dead_leader_is_told_once_and_found_again() -> None:
    async def story(rig: Rig) -> None:
        leader, mine = rig.leader.lead(), rig.follow()
        leader.append(make_batch(), -1, 0)
        await until(lambda: mine.log.log_end_offset == 1)
        rig.leader.die()
        await until(lambda: rig.gone == [1])
        rig.leader.is_up = True
        leader.append(make_batch(), -1, 0)
        await until(lambda: mine.log.log_end_offset == 2)
        assert rig.gone == [1]

    run(story)


def test_a_reset_connection_alone_is_no_death() -> None:
    async def story(rig: Rig) -> None:
        leader, mine = rig.leader.lead(), rig.follow()
        await until(lambda: bool(rig.leader.open))
        for connection in list(rig.leader.open):
            connection.close()
        leader.append(make_batch(), -1, 0)
        await until(lambda: mine.log.log_end_offset == 1)
        assert rig.gone == []

    run(story)


class LookedAt(FakeLog):
    """A log that notes each look at its latest epoch: one per fetch that is made for it."""

    seen: ClassVar[list[int]] = []

    @property
    def latest_epoch(self) -> int:
        self.seen.append(self.partition)
        return self.epochs.latest


def test_a_fetch_is_made_from_what_is_due_alone() -> None:
    async def story(rig: Rig) -> None:
        leaders = [rig.leader.lead(index) for index in range(30)]
        for index in range(30):
            rig.follow(index, log=LookedAt(partition=index))
        leaders[0].append(make_batch(), -1, 0)
        await until(lambda: leaders[0].high_watermark == 1)
        leaders[1].append(make_batch(), -1, 0)
        await until(lambda: leaders[1].high_watermark == 1)
        assert len(set(LookedAt.seen)) == 30
        LookedAt.seen.clear()
        for end in range(2, 6):
            leaders[9].append(make_batch(), -1, 0)
            await until(lambda end=end: leaders[9].high_watermark == end - 1)  # type: ignore[misc]
        assert 9 in LookedAt.seen and set(LookedAt.seen) <= {0, 1, 9}

    run(story)


def test_a_replica_whose_role_ended_is_asked_for_no_more() -> None:
    async def story(rig: Rig) -> None:
        leaders = [rig.leader.lead(index) for index in range(3)]
        mine = [rig.follow(index) for index in range(3)]
        leaders[0].append(make_batch(), -1, 0)
        await until(lambda: leaders[0].high_watermark == 1)
        mine[1].stop("its disk failed")  # nobody tells the fetch loop
        leaders[0].append(make_batch(), -1, 0)
        await until(lambda: leaders[0].high_watermark == 2)
        gone = [t.partitions for r in rig.leader.requests for t in r.forgotten_topics_data]
        assert (1,) in gone
        assert len(rig.fetcher) == 2

    run(story)


def test_a_log_start_that_moved_here_is_told_to_the_leader() -> None:
    async def story(rig: Rig) -> None:
        leader, mine = rig.leader.lead(), rig.follow()
        leader.append(make_batch(), -1, 0)
        await until(lambda: leader.high_watermark == 1)
        mine.log.log_start_offset = 1
        assert mine.log.on_log_start_moved is not None
        mine.log.on_log_start_moved()

        def told() -> list[int]:
            rows = [p for r in rig.leader.requests for t in r.topics for p in t.partitions]
            return [row.log_start_offset for row in rows]

        await until(lambda: told()[-1] == 1)

    run(story)


def test_sessions_name_only_changes() -> None:
    session = FetchSession()
    a: Any = ("ask", 1)
    b: Any = ("ask", 2)
    plan = session.plan({(b"t", 0): a, (b"t", 1): b})
    assert (plan.session_id, plan.session_epoch, plan.partitions) == (0, 0, [a, b])
    assert session.on_reply(ErrorCode.NONE, 55)
    plan = session.plan({(b"t", 0): a, (b"t", 1): ("ask", 3)})  # type: ignore[dict-item]
    assert (plan.session_id, plan.session_epoch, plan.partitions) == (55, 1, [("ask", 3)])
    assert session.on_reply(ErrorCode.NONE, 55)
    plan = session.plan({(b"t", 0): None, (b"t", 1): ("ask", 3)})  # type: ignore[dict-item]
    assert (plan.session_epoch, plan.partitions, plan.forgotten) == (2, [], [(b"t", 0)])
    assert not session.on_reply(ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)
    plan = session.plan({(b"t", 1): b})
    assert (plan.session_id, plan.session_epoch, plan.partitions) == (55, 0, [b])


def test_a_leader_without_room_for_sessions_gets_full_fetches() -> None:
    session = FetchSession()
    a: Any = ("ask", 1)
    for _ in range(3):
        assert session.plan({(b"t", 0): a}).partitions == [a]
        assert session.on_reply(ErrorCode.NONE, 0)


def test_every_error_has_a_reaction() -> None:
    for error in ErrorCode:
        found = reaction(error, diverges=False)
        assert (found is Reaction.APPEND) == (error is ErrorCode.NONE)
        if error is not ErrorCode.NONE:
            assert reaction(error, diverges=True) is found
    assert reaction(ErrorCode.NONE, diverges=True) is Reaction.TRUNCATE


def test_pauses_grow_to_their_limit() -> None:
    pauses = [pause_ms(n, 1000) for n in range(1, 10)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (20, 1000)
