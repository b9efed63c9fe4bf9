"""ShareFetch and ShareAcknowledge over a real socket and a real log, with a persister in memory."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import uuid5

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.ports.authorizer import Operation
from headwater.wire.apis import k78_share_fetch as k78
from headwater.wire.framing import encode_request
from headwater_broker.replica.share.ports import SharePartitionKey
from share_member import Member, code_of, rows_of
from share_world import HeldPersister, ShareWorld, share, until
from solo_broker import SoloBroker

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4


def test_records_are_delivered_acknowledged_and_durably_done_with(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await world.produce(3)
        await world.produce(2)
        await world.load(a)
        assert await a.rows() == [(0, 4, 1)]
        assert await a.rows() == []
        assert await a.rows((ACCEPT, 0, 2), (RELEASE, 3, 4)) == [(3, 4, 2)]
        assert code_of(await a.acknowledge((ACCEPT, 3, 4))) == 0
        state = world.state()
        assert (state.start_offset, state.delivery_complete_count) == (3, 2)
        assert not (await a.close()).error_code
        b = await world.member("b")
        await world.produce()
        await world.load(b)
        assert await b.rows() == [(5, 5, 1)]

    share(tmp_path, story)


def test_a_fetch_waits_for_records_for_released_ones_and_for_expired_locks(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a, b = await world.member(), await world.member("b")
        await world.load(a)
        await world.load(b)

        def parked() -> asyncio.Task[Any]:
            return asyncio.create_task(b.rows(max_wait_ms=20_000))

        waiting = parked()
        await until(lambda: world.broker.services.purgatories.fetch.parked)
        await world.produce(2)
        assert await waiting == [(0, 1, 1)]
        await b.acknowledge((ACCEPT, 0, 1))
        await world.produce(2)
        assert await a.rows() == [(2, 3, 1)]
        waiting = parked()
        await until(lambda: world.broker.services.purgatories.fetch.parked)
        await a.acknowledge((RELEASE, 2, 2))
        assert await waiting == [(2, 2, 2)]
        waiting = parked()
        assert await waiting == [(3, 3, 2)]  # its lock ends

    share(tmp_path, story, share_record_lock_duration_ms=1_500)


def test_a_parked_fetch_ends_at_its_time_and_with_its_connection(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await world.load(a)
        assert await a.rows(max_wait_ms=50) == []
        task = asyncio.create_task(a.rows(max_wait_ms=20_000))
        await until(lambda: world.broker.services.purgatories.fetch.parked)
        a.connection.close()
        with pytest.raises(ConnectionError):
            await task
        await until(lambda: not world.broker.services.purgatories.fetch.parked)
        assert len(world.shares.sessions) == 0

    share(tmp_path, story)


def test_a_lost_connection_gives_back_what_the_member_held(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a, b = await world.member(), await world.member("b")
        await world.produce(4)
        await world.load(b)
        assert await a.rows() == [(0, 3, 1)]
        waiting = asyncio.create_task(b.rows(max_wait_ms=20_000))
        await until(lambda: world.broker.services.purgatories.fetch.parked)
        a.connection.close()
        world.connections.remove(a.connection)
        assert await waiting == [(0, 3, 2)]

    share(tmp_path, story)


def test_session_epochs(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await world.produce(1)
        assert (await a.fetch(epoch=1)).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert (await a.fetch((ACCEPT, 0, 0), epoch=0)).error_code == ErrorCode.INVALID_REQUEST
        assert (await a.acknowledge(epoch=0)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert (await a.close()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        await world.load(a)
        assert await a.rows() == [(0, 0, 1)]
        wrong = a.epoch + 1
        assert (await a.fetch(epoch=wrong)).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        assert (await a.acknowledge(epoch=wrong)).error_code == (
            ErrorCode.INVALID_SHARE_SESSION_EPOCH
        )
        assert await a.rows(epoch=0) == [(0, 0, 2)], "a new session: the old one's is given back"
        reply = await a.fetch((ACCEPT, 0, 0), epoch=-1)
        (row,) = rows_of(reply)
        assert (reply.error_code, row.acknowledge_error_code, row.acquired_records) == (0, 0, ())
        assert world.state().batches[0].delivery_state == 2
        assert len(world.shares.sessions) == len(world.shares) == 0

    share(tmp_path, story)


def test_the_number_of_sessions_is_bounded(tmp_path: Path) -> None:
    async def run() -> None:
        broker = SoloBroker(tmp_path, group_share_max_share_sessions="1")
        broker.persister = HeldPersister()
        async with broker:
            world = ShareWorld(broker, broker.create_topic("t"), broker.persister)
            a, b = await world.member(), await world.member("b")
            assert (await a.fetch()).error_code == 0
            assert (await b.fetch()).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
            await a.close()
            assert (await b.fetch()).error_code == 0
            for connection in world.connections:
                connection.close()

    asyncio.run(run())


def test_the_answer_waits_for_the_persister_and_a_failure_gives_the_records_back(
    tmp_path: Path,
) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await world.produce(4)
        await world.load(a)
        assert await a.rows() == [(0, 3, 1)]
        world.persister.gate.clear()
        waiting = asyncio.create_task(a.acknowledge((ACCEPT, 0, 1)))
        await until(lambda: world.persister.asked >= 2)
        assert not waiting.done()
        world.persister.gate.set()
        assert code_of(await waiting) == 0
        world.persister.failures.append(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "gone"))
        assert code_of(await a.acknowledge((ACCEPT, 2, 3))) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert code_of(await a.acknowledge((ACCEPT, 2, 3))) == 0, "it holds them still"
        again = await a.acknowledge((ACCEPT, 2, 3))
        assert code_of(again) == ErrorCode.INVALID_RECORD_STATE, "below the start offset"
        assert world.state().delivery_complete_count == 2

    share(tmp_path, story)


def test_a_fenced_leader_lets_go(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await world.produce(4)
        await world.load(a)
        assert await a.rows() == [(0, 3, 1)]
        key = SharePartitionKey("g", world.topic_id, 0)
        await world.persister.initialize(key, 2, 0)  # the group's offsets were set anew
        code = code_of(await a.acknowledge((ACCEPT, 0, 1)))
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        await a.rows()
        await until(lambda: all(led.machine for led in world.shares))
        assert await a.rows() == [(0, 3, 1)]

    share(tmp_path, story)


def test_a_new_leader_epoch_loads_the_state_again(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await world.produce(4)
        await world.load(a)
        assert await a.rows() == [(0, 3, 1)]
        await a.acknowledge((ACCEPT, 0, 0), (RELEASE, 2, 2))
        world.broker.create_topic("t", epoch=1)
        assert code_of(await a.acknowledge((ACCEPT, 1, 1))) == ErrorCode.INVALID_RECORD_STATE
        await world.load(a)
        assert await a.rows() == [(1, 1, 1), (2, 2, 2), (3, 3, 1)]

    share(tmp_path, story)


def test_a_partition_that_moved_names_its_leader(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await world.produce(1)
        await world.load(a)
        assert await a.rows() == [(0, 0, 1)]
        world.broker.racks = {2: "r"}
        world.broker.move_away("t")
        (row,) = rows_of(reply := await a.fetch((ACCEPT, 0, 0)))
        assert row.error_code == row.acknowledge_error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (row.current_leader.leader_id, row.current_leader.leader_epoch) == (2, 9)
        assert [node.node_id for node in reply.node_endpoints] == [2]
        reply = await a.acknowledge((ACCEPT, 0, 0))
        (row,) = rows_of(reply)
        assert row.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert row.current_leader.leader_id == reply.node_endpoints[0].node_id == 2

    share(tmp_path, story)


def test_bounds_of_a_fetch_and_a_fair_turn_for_each_partition(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member(partitions=(0, 1))
        for index in (0, 1):
            for _ in range(3):
                await world.produce(2, partition=index)
        await world.load(a)
        first = await a.fetch(max_records=2)
        assert [r.partition_index for r in rows_of(first)] == [0]
        second = await a.fetch(max_records=2)
        assert [r.partition_index for r in rows_of(second)] == [1]
        exact = await a.fetch(max_records=3, share_acquire_mode=1)
        assert [
            (
                r.partition_index,
                r.acquired_records[0].first_offset,
                r.acquired_records[0].last_offset,
            )
            for r in rows_of(exact)
        ] == [(0, 2, 4)]
        tiny = await a.fetch(max_bytes=1)
        assert [r.partition_index for r in rows_of(tiny)] == [1], "a whole batch all the same"

    share(tmp_path, story, partitions=2)


def test_min_bytes_are_waited_for(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await world.load(a)
        await world.produce(1, size=100)
        waiting = asyncio.create_task(a.rows(min_bytes=1_000, max_wait_ms=20_000))
        await until(lambda: world.broker.services.purgatories.fetch.parked)
        await world.produce(1, size=1_000)
        assert await waiting == [(0, 1, 1)]

    share(tmp_path, story)


def test_renewed_locks(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await world.produce(2)
        await world.load(a)
        assert await a.rows() == [(0, 1, 1)]
        reply = await a.acknowledge((RENEW, 0, 1))
        assert code_of(reply) == ErrorCode.INVALID_REQUEST, "is_renew_ack is false"
        reply = await a.acknowledge((RENEW, 0, 0), is_renew_ack=True)
        assert (code_of(reply), reply.acquisition_lock_timeout_ms) == (0, 30_000)
        (led,) = world.shares
        first, second = led.machine.runs()
        assert first.delivery.deadline > second.delivery.deadline
        zero = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
        reply = await a.fetch((RENEW, 0, 1), is_renew_ack=True)
        assert reply.error_code == ErrorCode.INVALID_REQUEST, "it would fetch, too"
        reply = await a.fetch((RENEW, 1, 1), is_renew_ack=True, **zero)
        assert [r.acknowledge_error_code for r in rows_of(reply)] == [0]
        world.settings = replace(world.settings, share_renew_acknowledge_enable=False)
        reply = await a.acknowledge((RENEW, 0, 0), is_renew_ack=True)
        assert code_of(reply) == ErrorCode.INVALID_RECORD_STATE

    share(tmp_path, story)


@pytest.mark.parametrize("version", [1, 2])
def test_both_versions(tmp_path: Path, version: int) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member(version=version)
        await world.produce(2, size=40_000)  # sent as a slice of the file
        await world.load(a)
        assert await a.rows() == [(0, 1, 1)]
        assert code_of(await a.acknowledge((ACCEPT, 0, 1))) == 0

    share(tmp_path, story)


def test_unknown_topics_and_a_state_that_was_never_initialized(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        unknown = Member(a.connection, uuid5(world.topic_id, "x"), member="b")
        (row,) = rows_of(await unknown.fetch())
        assert row.error_code == ErrorCode.UNKNOWN_TOPIC_ID
        stranger = Member(a.connection, world.topic_id, group="h", member="c")
        assert await stranger.rows() == []
        await until(lambda: any(led.failure for led in world.shares))
        assert await stranger.rows() == []

    share(tmp_path, story)


class Refuses:
    """An authorizer that refuses one operation on one name."""

    generation = 0

    def __init__(self, name: str) -> None:
        self.name = name

    def authorize(self, session: Any, operation: Operation, resource: Any, name: str) -> bool:
        return name != self.name

    def authorize_any(self, session: Any, operation: Operation, resource: Any) -> bool:
        return True


def test_rights(tmp_path: Path) -> None:
    async def of_group(world: ShareWorld) -> None:
        a = await world.member()
        assert (await a.fetch()).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert (await a.acknowledge()).error_code == ErrorCode.GROUP_AUTHORIZATION_FAILED

    async def of_topic(world: ShareWorld) -> None:
        a = await world.member()
        (row,) = rows_of(await a.fetch())
        assert row.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert code_of(await a.acknowledge((1, 0, 0))) == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    share(tmp_path / "g", of_group, authorizer=Refuses("g"))  # type: ignore[arg-type]
    share(tmp_path / "t", of_topic, authorizer=Refuses("t"))  # type: ignore[arg-type]


def test_responses_are_those_of_the_codec(tmp_path: Path) -> None:
    async def story(world: ShareWorld) -> None:
        a = await world.member()
        await world.produce(2)
        await world.load(a)
        reply = await a.fetch()
        (row,) = rows_of(reply)
        assert row.acquired_records and bytes(row.records)
        assert reply.acquisition_lock_timeout_ms == 30_000
        assert encode_request(k78.ShareFetchRequest(), 2, 1, "c")

    share(tmp_path, story)


def test_the_first_offset_is_chosen_once(tmp_path: Path) -> None:
    """Two leaders would choose different ends of the log."""

    async def story(world: ShareWorld) -> None:
        world.settings = replace(world.settings, share_auto_offset_reset="latest")
        a = await world.member()
        await world.produce(3)
        await world.load(a)
        assert world.state().start_offset == 3
        await world.produce(2)
        world.broker.create_topic("t", epoch=1)
        await world.load(a)
        assert await a.rows() == [(3, 4, 1)]

    share(tmp_path, story)
