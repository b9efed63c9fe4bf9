"""Decisions of a leader without followers: appended, replayed and answered within the command."""

from __future__ import annotations

import asyncio

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater_broker.coordinator.common.reply import Reply
from headwater_broker.coordinator.common.runtime import CoordinatorRuntime
from headwater_broker.coordinator.common.shard import Producer
from unit.coordinator.memory_log import MemoryLog
from unit.coordinator.test_runtime import Sums, add, add_within, code_of, loaded, play, total

Runtime = CoordinatorRuntime[Sums]
E = ErrorCode


def at_once(runtime: Runtime, *numbers: bytes) -> object:
    """The reply, which must be there when the command has run."""
    reply = Reply()
    runtime.begin(0, add(*numbers), reply)
    assert reply.is_given
    return reply.take()


def code_at_once(runtime: Runtime, number: bytes) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        at_once(runtime, number)
    return caught.value.code


def test_each_decision_of_a_turn_is_in_the_log_and_answered_before_the_next() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.is_lone = True
        assert at_once(runtime, b"1", b"2") == 0
        assert at_once(runtime, b"4") == 3
        assert (log.appends, log.end, runtime.shards[0].offsets) == (2, 3, [0, 1, 2])
        runtime.on_resign(0)
        log.epoch = 1
        runtime.on_leader(0, 1)
        await loaded(runtime)
        assert await runtime.run(0, total) == 7

    play(story)


def test_a_decision_of_a_producer_waits_for_its_marker() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.is_lone = True
        await runtime.run(0, add_within(Producer(5, 0), b"3"))
        assert runtime.shards[0].pending == {5: [3]}
        await runtime.end_transaction(0, 5, 0, 0, commit=True)
        assert await runtime.run(0, total) == 3

    play(story)


def test_a_marker_of_unknown_outcome_loads_the_shard_again() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.is_lone = True
        await runtime.run(0, add_within(Producer(5, 0), b"3"))
        shard = runtime.shards[0]
        log.failure = KafkaError(E.KAFKA_STORAGE_ERROR, "the disk")
        assert await code_of(runtime.end_transaction(0, 5, 0, 0, commit=True)) is E.NOT_COORDINATOR
        await loaded(runtime)
        assert runtime.shards != [shard]

    play(story)


def test_who_follows_replies_that_are_due_waits_behind_them() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.is_held = True
        first = runtime.start(0, add(b"1"))
        await asyncio.sleep(0)
        log.is_held, log.is_lone = False, True  # as when the last follower is removed
        order: list[object] = []
        first.add_done_callback(lambda done: order.append(done.result()))
        second = runtime.start(0, add(b"2"))
        second.add_done_callback(lambda done: order.append(done.result()))
        await asyncio.gather(first, second)
        await asyncio.sleep(0)
        assert order == [0, 1]

    play(story)


def test_a_batch_that_the_log_rejects_changes_nothing_and_gets_its_error() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.is_lone, log.batch_max_bytes = True, 100
        shard = runtime.shards[0]
        assert code_at_once(runtime, b"1" + b" " * 100) is E.UNKNOWN_SERVER_ERROR
        assert at_once(runtime, b"2") == 0
        assert runtime.shards == [shard] and shard.total == 2

    play(story)


@pytest.mark.parametrize("is_written", (False, True))
def test_an_append_of_unknown_outcome_loads_the_shard_again(is_written: bool) -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.is_lone = True
        shard = runtime.shards[0]
        log.failure = KafkaError(E.KAFKA_STORAGE_ERROR, "the disk")
        log.is_written_though_failed = is_written
        assert code_at_once(runtime, b"1") is E.NOT_COORDINATOR
        await loaded(runtime)
        assert runtime.shards != [shard]
        assert await runtime.run(0, total) == int(is_written)

    play(story)


def test_a_leadership_that_ends_with_the_append_drops_the_shard() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.is_lone = True
        log.failure = KafkaError(E.NOT_LEADER_OR_FOLLOWER, "another broker leads")
        assert code_at_once(runtime, b"1") is E.NOT_COORDINATOR
        assert not runtime.is_hosted(0)

    play(story)


def test_a_replay_that_fails_loads_the_shard_again() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.is_lone = True
        assert code_at_once(runtime, b"poison") is E.NOT_COORDINATOR
        assert not runtime.is_ready(0)

    play(story)


def test_a_command_at_once_returns_what_it_confirms() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        assert runtime.at_once(0, add(b"1")) is None, "the log may have followers"
        log.is_lone = True
        assert runtime.at_once(0, add(b"1", b"2")) == 0
        assert runtime.at_once(0, add(b"4")) == 3
        assert (log.appends, log.end, runtime.shards[0].offsets) == (2, 3, [0, 1, 2])
        assert runtime.at_once(0, total) is None, "it has no record"
        assert runtime.at_once(1, add(b"8")) is None, "another broker has this shard"
        assert await runtime.run(0, total) == 7

    play(story)


def test_a_command_at_once_waits_for_nobody() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.is_held = True
        first = runtime.start(0, add(b"1"))
        log.is_held, log.is_lone = False, True  # as when the last follower is removed
        assert runtime.at_once(0, add(b"2")) is None
        log.release()
        assert await first == 0
        await asyncio.sleep(0)
        assert runtime.at_once(0, add(b"2")) == 1

    play(story)


def test_a_command_at_once_that_the_log_rejects_changes_nothing() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.is_lone, log.batch_max_bytes = True, 100
        shard = runtime.shards[0]
        assert runtime.at_once(0, add(b"1" + b" " * 100)) is None
        log.rejection = KafkaError(E.NOT_ENOUGH_REPLICAS, "the ISR is too small")
        assert runtime.at_once(0, add(b"1")) is None
        log.rejection = None
        assert runtime.at_once(0, add(b"2")) == 0
        assert runtime.shards == [shard] and shard.total == 2

    play(story)


def test_a_command_at_once_of_unknown_outcome_loads_the_shard_again() -> None:
    async def story(runtime: Runtime, log: MemoryLog) -> None:
        log.is_lone = log.is_written_though_failed = True
        shard = runtime.shards[0]
        log.failure = KafkaError(E.KAFKA_STORAGE_ERROR, "the disk")
        assert runtime.at_once(0, add(b"1")) is None
        await loaded(runtime)
        assert runtime.shards != [shard]
        assert await runtime.run(0, total) == 1
        assert runtime.at_once(0, add(b"poison")) is None
        assert not runtime.is_ready(0)

    play(story)


def test_a_reply_that_is_awaited_wakes_and_one_given_up_is_left_alone() -> None:
    async def story() -> None:
        reply, given_up = Reply(), Reply()
        waits = asyncio.ensure_future(reply.wait())
        gives_up = asyncio.ensure_future(given_up.wait())
        await asyncio.sleep(0)
        assert not reply.done() and not given_up.done()
        gives_up.cancel()
        await asyncio.sleep(0)
        assert given_up.done()
        given_up.set_result(1)
        reply.set_exception(KafkaError(E.NOT_COORDINATOR, "it is gone"))
        with pytest.raises(KafkaError):
            await waits

    asyncio.run(story())
