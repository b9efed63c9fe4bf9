"""A follower's fetch reads the partitions that changed, and misses none of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from headwater.client.connection import Connection, open_connection
from headwater.errors import ErrorCode
from headwater.wire.apis.k01_fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from headwater.wire.control import PartitionState
from headwater_broker.api import k01_fetch
from headwater_broker.api.fetch_session.cache import FetchSession
from headwater_broker.api.fetch_session.dirty_set import DirtyPartitions
from headwater_broker.api.fetch_session.partition import FetchItem
from headwater_broker.purgatory.purgatory import Purgatory
from headwater_broker.replica.partition import Partition
from solo_broker import BROKER_EPOCH, SoloBroker
from unit.network.test_data_plane import batch, produce, serve
from unit.replica.test_partition import LAG_S, Hosted, state

PARTITIONS = 40
LONG_MS = 20_000
"""A fetch parked so long answers within a test only when it is woken."""


class Follower:
    """Broker `replica` as the broker under test sees it: one session, its fetches in order."""

    def __init__(self, broker: SoloBroker, replica: int, topic_id: UUID) -> None:
        self.broker = broker
        self.replica = replica
        self.topic_id = topic_id
        self.broker_epoch = BROKER_EPOCH
        self.session_id = self.epoch = 0
        self.connection: Connection | None = None

    async def fetch(
        self, offsets: dict[int, int], wait_ms: int = 0, forget: tuple[int, ...] = ()
    ) -> dict[int, Any]:
        """Name these partitions; the rows of the answer by partition."""
        if self.connection is None:
            self.connection = await open_connection("127.0.0.1", self.broker.port, negotiate=False)
        rows = tuple(
            FetchPartition(partition=p, fetch_offset=at, partition_max_bytes=1 << 20)
            for p, at in offsets.items()
        )
        gone = (ForgottenTopic(topic_id=self.topic_id, partitions=forget),) if forget else ()
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=(FetchTopic(topic_id=self.topic_id, partitions=rows),) if rows else (),
            forgotten_topics_data=gone,
            replica_state=ReplicaState(replica_id=self.replica, replica_epoch=self.broker_epoch),
        )
        reply = await self.connection.call(request, FetchResponse, version=17)
        assert reply.error_code == 0
        self.session_id = reply.session_id
        self.epoch += 1
        return {row.partition_index: row for t in reply.responses for row in t.partitions}

    async def settle(self, count: int = PARTITIONS) -> None:
        """A session over `count` empty partitions, all of them passed by from now on."""
        await self.fetch(dict.fromkeys(range(count), 0))
        await self.fetch({})

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()


async def is_parked(broker: SoloBroker) -> None:
    while not broker.services.purgatories.fetch.parked:
        await asyncio.sleep(0)  # lets the loop turn; no time passes here


@pytest.fixture
def visits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions whose followers were looked at."""
    seen: list[int] = []
    real = Partition.update_follower

    def counted(self: Partition, *args: Any, **kw: Any) -> Any:
        seen.append(self.partition)
        return real(self, *args, **kw)

    monkeypatch.setattr(Partition, "update_follower", counted)
    return seen


def test_a_fetch_looks_at_what_moved_and_at_nothing_else(tmp_path: Path, visits: list[int]) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", PARTITIONS, replicas=(1, 2))
        follower = Follower(broker, 2, topic_id)
        await follower.settle()
        assert sorted(set(visits)) == list(range(PARTITIONS))
        visits.clear()
        assert await follower.fetch({}) == {}
        assert visits == []
        await produce(c, "t", batch(), partition=7)
        assert list(await follower.fetch({})) == [7]
        assert visits == [7]
        assert list(await follower.fetch({7: 1})) == [7], "its high watermark"
        assert visits == [7, 7]
        assert await follower.fetch({}) == {}
        follower.close()

    serve(tmp_path, scenario)


def test_a_parked_fetch_is_woken_by_any_partition_that_it_passed_by(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", PARTITIONS, replicas=(1, 2))
        follower = Follower(broker, 2, topic_id)
        await follower.settle()
        offsets = dict.fromkeys(range(PARTITIONS), 0)
        for at in (3, 31, 3):
            ahead = {p: offsets[p] for p in (3, 31) if offsets[p]}
            parked = asyncio.create_task(follower.fetch(ahead, LONG_MS))
            await is_parked(broker)
            await produce(c, "t", batch(), partition=at)
            rows = await asyncio.wait_for(parked, 5)
            assert rows[at].records
            offsets[at] += 1
        follower.close()

    serve(tmp_path, scenario)


def test_marks_that_others_move_come_with_the_next_answer(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", PARTITIONS, replicas=(1, 2, 3))
        two, three = Follower(broker, 2, topic_id), Follower(broker, 3, topic_id)
        await two.settle()
        await three.settle()
        await produce(c, "t", batch(), partition=5)
        assert list(await two.fetch({})) == [5]
        assert await two.fetch({5: 1}) == {}, "the other one has not fetched it"
        await three.fetch({})
        await three.fetch({5: 1})
        told = await two.fetch({})
        assert {p: row.high_watermark for p, row in told.items()} == {5: 1}
        broker.replicas.lookup("t", 5).log.delete_records_before(1)
        for follower in (two, three):
            told = await follower.fetch({})
            assert {p: row.log_start_offset for p, row in told.items()} == {5: 1}
            assert await follower.fetch({}) == {}
            follower.close()

    serve(tmp_path, scenario)


def test_thousands_of_isrs_that_change_wake_no_parked_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", PARTITIONS, replicas=(1, 2, 3))
        follower = Follower(broker, 2, topic_id)
        await follower.settle()
        parked = asyncio.create_task(follower.fetch({}, LONG_MS))
        await is_parked(broker)
        looks: list[int] = []
        real = k01_fetch.DelayedFetch.try_complete
        monkeypatch.setattr(
            k01_fetch.DelayedFetch,
            "try_complete",
            lambda job, gauge: (looks.append(1), real(job, gauge)),
        )
        for index in range(PARTITIONS):
            partition = broker.replicas.lookup("t", index)
            partition.update_state(
                PartitionState(
                    topic="t", topic_id=topic_id, partition=index, leader_id=1, leader_epoch=0,
                    partition_epoch=1, isr=(1, 2), replicas=(1, 2, 3),
                )
            )  # fmt: skip
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert looks == []
        await produce(c, "t", batch(), partition=8)
        assert (await asyncio.wait_for(parked, 5))[8].records
        assert looks == [1]
        follower.close()

    serve(tmp_path, scenario)


def test_a_new_leader_epoch_is_told_at_once(tmp_path: Path) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", PARTITIONS, replicas=(1, 2))
        follower = Follower(broker, 2, topic_id)
        await follower.settle()
        parked = asyncio.create_task(follower.fetch({}, LONG_MS))
        await is_parked(broker)
        broker.create_topic("t", PARTITIONS, replicas=(1, 2), leader=2, epoch=1)
        rows = await asyncio.wait_for(parked, 5)
        assert len(rows) == PARTITIONS
        assert {row.error_code for row in rows.values()} == {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        assert len(await follower.fetch({})) == PARTITIONS, "as long as it asks for them"
        follower.close()

    serve(tmp_path, scenario)


def test_a_follower_in_a_new_life_is_looked_at_everywhere(
    tmp_path: Path, visits: list[int]
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", PARTITIONS, replicas=(1, 2))
        follower = Follower(broker, 2, topic_id)
        await follower.settle()
        visits.clear()
        follower.broker_epoch += 1
        await follower.fetch({})
        assert sorted(visits) == list(range(PARTITIONS))
        follower.close()

    serve(tmp_path, scenario)


def test_a_follower_out_of_the_isr_is_looked_at_each_time(
    tmp_path: Path, visits: list[int]
) -> None:
    async def scenario(broker: SoloBroker, c: Connection) -> None:
        topic_id = broker.create_topic("t", 2, replicas=(1, 2, 3), isr=(1, 3))
        follower = Follower(broker, 2, topic_id)
        await follower.settle(2)
        visits.clear()
        await follower.fetch({})
        await follower.fetch({})
        assert sorted(visits) == [0, 0, 1, 1], "or it could never be proposed again"
        follower.close()

    serve(tmp_path, scenario)


class Session:
    """One follower's session over one partition, on a clock that is moved by hand."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.host = Hosted()
        self.partition = self.host.lead()
        self.item = FetchItem("t", 0, 0, 1000)
        self.session = FetchSession(1, True, True, 0, 0)
        self.session.apply([self.item], ())
        self.dirty = DirtyPartitions((2, 1), [self.item], Purgatory(self.loop))
        self.session.dirty = self.dirty
        self.host.fetched(3, 0)

    def wait(self, seconds: float) -> None:
        self.host.clock.advance(int(seconds * 1000))

    def fetch(self, *named: FetchItem, forgotten: tuple[tuple[str, int], ...] = ()) -> bool:
        """A fetch comes; True when it had to look at the partition."""
        self.session.apply(named, forgotten)
        self.dirty.fetched_by((2, 1), self.host.clock.monotonic())
        looked = self.item in self.dirty.due
        if looked:
            self.host.fetched(2, self.item.fetch_offset)
            self.item.sent_high_watermark = self.partition.high_watermark
            self.item.sent_log_start = self.partition.log.log_start_offset
            self.dirty.mark_read(self.item, self.partition)
        return looked

    def close(self) -> None:
        self.loop.close()


@pytest.fixture
def one() -> Any:
    session = Session()
    yield session
    session.close()


def test_who_was_passed_by_for_long_has_the_whole_lag_time_after_an_append(one: Session) -> None:
    assert one.fetch() and not one.fetch()
    for _ in range(10):
        one.wait(LAG_S / 2)
        assert not one.fetch()
        one.host.fetched(3, 0)
    one.host.append()
    one.partition.isr_tick(one.host.clock.monotonic())
    assert one.host.proposals == [], "it held all there was half a minute ago at the most"
    one.wait(LAG_S + 1)
    one.host.fetched(3, 1)
    one.partition.isr_tick(one.host.clock.monotonic())
    assert one.host.proposals == [(1, 3)]


def test_what_a_session_forgets_counts_as_fetched_no_more(one: Session) -> None:
    assert one.fetch()
    one.wait(10)
    assert not one.fetch()
    one.wait(10)
    one.fetch(forgotten=(("t", 0),))
    one.host.append()
    one.wait(LAG_S - 9)
    one.host.fetched(3, 1)
    one.partition.isr_tick(one.host.clock.monotonic())
    assert one.host.proposals == [(1, 3)], "its last fetch was that at 10 s"


@pytest.mark.parametrize("isr", [(1, 2), (1, 2, 3)])
def test_what_the_controller_says_is_looked_at(one: Session, isr: tuple[int, ...]) -> None:
    assert one.fetch() and not one.fetch()
    known = {"leader_epoch": 4, "partition_epoch": 11, "replicas": (1, 2, 3)}
    one.partition.update_state(state(isr=isr, **known))
    assert one.fetch()
    assert not one.fetch()


def test_nobody_is_passed_by_while_the_isr_is_being_changed(one: Session) -> None:
    assert one.fetch() and not one.fetch()
    one.wait(LAG_S + 1)
    one.host.append()
    one.item.fetch_offset = 1
    assert one.fetch(), "3 has not fetched for long"
    one.partition.isr_tick(one.host.clock.monotonic())
    assert one.host.proposals == [(1, 2)]
    assert one.fetch() and one.fetch()


def test_an_older_session_of_the_same_follower_claims_nothing(one: Session) -> None:
    assert one.fetch() and not one.fetch()
    one.wait(LAG_S + 1)
    row = one.partition.leader_state.progress[2]  # type: ignore[union-attr]
    row.fetched(0, 5, one.host.clock.monotonic())  # the newer session is behind: the end was 5
    before = row.caught_up_at
    one.partition.caught_up_followers.wake_all()
    assert row.caught_up_at == before
