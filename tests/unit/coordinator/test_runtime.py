"""The runtime over a log in memory: load and unload, replies and the high watermark, failures."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.system import SystemClock
from headwater_broker.coordinator.common.decision import Decision, Now, StoredRecord, Token
from headwater_broker.coordinator.common.runtime import BATCH_BYTES, CoordinatorRuntime
from unit.coordinator.memory_log import MemoryLog


class Sums:
    """A shard that adds numbers, one per key."""

    def __init__(self) -> None:
        self.total = 0
        self.parked: list[Token] = []
        self.deadline: float | None = None
        self.loads = 0

    def replay(self, key: bytes, value: bytes | None) -> None:
        if value == b"poison":
            raise ValueError("poison")
        self.total += int((value or b"0").strip())

    def loaded(self, now: Now) -> None:
        self.loads += 1

    def tick(self, now: Now) -> Decision:
        out = Decision()
        for token in self.parked:
            out.reply(token, "woken")
        self.parked.clear()
        self.deadline = None
        return out

    def next_deadline_ms(self) -> float | None:
        return self.deadline


_keys = itertools.count()


def add(*numbers: bytes) -> Callable[[Sums, Now, Token], Decision]:
    def command(shard: Sums, now: Now, token: Token) -> Decision:
        out = Decision()
        out.records += [StoredRecord(b"%d" % next(_keys), number) for number in numbers]
        return out.confirm(token, shard.total)  # before the replay: what was there

    return command


def total(shard: Sums, now: Now, token: Token) -> Decision:
    return Decision().reply(token, shard.total)


def park(shard: Sums, now: Now, token: Token) -> Decision:
    shard.parked.append(token)
    shard.deadline = now.steady_ms + 20
    return Decision()


async def code_of(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await work
    return caught.value.code


Story = Callable[[CoordinatorRuntime[Sums], MemoryLog], Coroutine[Any, Any, None]]


def play(story: Story, *, write_timeout_ms: int = 2_000, lead: bool = True) -> None:
    """Run a story; by default partition 0 is loaded first."""

    async def run() -> None:
        log = MemoryLog()
        runtime = CoordinatorRuntime(
            "sums", lambda _: Sums(), log, SystemClock(), write_timeout_ms=write_timeout_ms
        )
        if lead:
            runtime.on_leader(0, 0)
            await loaded(runtime)
        await story(runtime, log)
        await runtime.close()

    asyncio.run(run())


async def loaded(runtime: CoordinatorRuntime[Sums]) -> None:
    while not runtime.is_ready(0):
        await asyncio.sleep(0)


def test_state_changes_by_replay_and_a_successor_loads_the_same() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        assert await runtime.run(0, add(b"1", b"2")) == 0
        assert await runtime.run(0, total) == 3
        runtime.on_resign(0)
        assert await code_of(runtime.run(0, total)) is ErrorCode.NOT_COORDINATOR
        log.epoch = 1
        log.read_gate = asyncio.Event()
        runtime.on_leader(0, 1)
        assert runtime.is_loading
        assert await code_of(runtime.run(0, total)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        log.read_gate.set()
        await loaded(runtime)
        assert await runtime.run(0, total) == 3

    play(story)


def test_partitions_that_are_not_led_have_no_coordinator() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        assert await code_of(runtime.run(0, total)) is ErrorCode.NOT_COORDINATOR

    play(story, lead=False)


def test_replies_wait_for_the_high_watermark_reads_too() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        log.is_held = True
        write = asyncio.ensure_future(runtime.run(0, add(b"5")))
        read = asyncio.ensure_future(runtime.run(0, total))
        await asyncio.sleep(0.01)
        assert not write.done()
        assert not read.done()  # it has seen what may yet be lost
        log.release()
        assert await read == 5
        assert await write == 0

    play(story)


def test_a_lost_leadership_fails_every_waiting_request() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        log.is_held = True
        write = asyncio.ensure_future(runtime.run(0, add(b"5")))
        parked = asyncio.ensure_future(runtime.run(0, park))
        await asyncio.sleep(0)
        log.depose()
        assert await code_of(write) is ErrorCode.NOT_COORDINATOR
        assert await code_of(parked) is ErrorCode.NOT_COORDINATOR
        assert not runtime.is_hosted(0)

    play(story)


def test_an_unknown_outcome_reloads_what_is_really_in_the_log() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        await runtime.run(0, add(b"1"))
        log.failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "disk")
        log.is_written_though_failed = True
        assert await code_of(runtime.run(0, add(b"10"))) is ErrorCode.NOT_COORDINATOR
        await loaded(runtime)
        assert await runtime.run(0, total) == 11

    play(story)


@pytest.mark.parametrize(
    ("met", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_refused_append_changes_nothing(met: ErrorCode, told: ErrorCode) -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        log.failure = KafkaError(met, "no")
        assert await code_of(runtime.run(0, add(b"10"))) is told
        assert await runtime.run(0, total) == 0

    play(story)


def test_a_reply_that_waits_too_long_fails_and_the_record_stays() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        log.is_held = True
        late = runtime.run(0, add(b"5"))
        assert await code_of(late) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        log.release()
        assert await runtime.run(0, total) == 5

    play(story, write_timeout_ms=20)


def test_timers_answer_parked_requests() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        assert await asyncio.wait_for(runtime.run(0, park), 5) == "woken"

    play(story)


def test_a_command_that_breaks_reloads_the_shard() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        await runtime.run(0, add(b"1"))

        def broken(shard: Sums, now: Now, token: Token) -> Decision:
            shard.total = 99
            raise ZeroDivisionError

        assert await code_of(runtime.run(0, broken)) is ErrorCode.NOT_COORDINATOR
        await loaded(runtime)
        assert await runtime.run(0, total) == 1

    play(story)


def test_a_cancelled_request_leaves_nothing_behind() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        gone = asyncio.ensure_future(runtime.run(0, park))
        await asyncio.sleep(0)
        gone.cancel()
        assert await asyncio.wait_for(runtime.run(0, park), 5) == "woken"

    play(story)


def test_many_records_are_split_over_batches() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        number = b"1".rjust(1000)
        count = 3 * BATCH_BYTES // 1000
        await runtime.run(0, add(*[number] * count))
        assert len(log.batches) == 4
        assert await runtime.run(0, total) == count

    play(story)


def test_an_older_epoch_is_ignored_and_a_newer_one_reloads() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        await runtime.run(0, add(b"1"))
        runtime.on_leader(0, 0)
        assert runtime.is_ready(0)
        log.epoch = 2
        runtime.on_leader(0, 2)
        assert not runtime.is_ready(0)
        await loaded(runtime)
        assert await runtime.run(0, total) == 1

    play(story)
