"""The runtime over a log in memory: load and unload, replies and the high watermark, failures."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.records.batch import iter_headers
from headwater.records.builder import BatchBuilder
from headwater.system import SystemClock
from headwater_broker.coordinator.common.runtime import CoordinatorRuntime
from headwater_broker.coordinator.common.shard import (
    Decision,
    Decisions,
    Now,
    Producer,
    StoredRecord,
    Token,
)
from headwater_broker.coordinator.common.turn_batches import BATCH_BYTES
from unit.coordinator.memory_log import MemoryLog


class Sums:
    """A shard that adds numbers, one per key; those of open transactions wait."""

    def __init__(self) -> None:
        self.total = 0
        self.offsets: list[int] = []
        self.pending: dict[int, list[int]] = {}
        self.parked: list[Token] = []
        self.deadline: float | None = None
        self.loads = 0

    def replay(
        self, offset: int, producer_id: int, producer_epoch: int, key: bytes, value: bytes | None
    ) -> None:
        if value == b"poison":
            raise ValueError("poison")
        self.offsets.append(offset)
        number = int((value or b"0").strip())
        if producer_id < 0:
            self.total += number
        else:
            pending = self.pending.setdefault(producer_id, [])
            pending.append(number)

    def replay_end_transaction(
        self, producer_id: int, producer_epoch: int, *, commit: bool
    ) -> None:
        self.total += sum(self.pending.pop(producer_id, [])) * commit

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


def add_within(producer: Producer, number: bytes) -> Callable[[Sums, Now, Token], Decision]:
    def command(shard: Sums, now: Now, token: Token) -> Decision:
        out = Decision(producer)
        out.records.append(StoredRecord(b"%d" % next(_keys), number))
        return out.confirm(token, None)

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
    ("met", "answered"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_rejected_append_changes_nothing(met: ErrorCode, answered: ErrorCode) -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        await runtime.run(0, add(b"1"))
        shard = runtime.shards[0]
        log.rejection = KafkaError(met, "no")
        assert await code_of(runtime.run(0, add(b"10"))) is answered
        assert await runtime.run(0, total) == 1
        assert runtime.shards == [shard], "nothing was replayed, so nothing is loaded again"

    play(story)


def test_an_append_that_fails_unforeseen_reloads_and_answers_its_error() -> None:
    """The ISR shrank between the check and the append."""

    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        shard = runtime.shards[0]
        first = asyncio.ensure_future(runtime.run(0, add(b"1")))
        write = asyncio.ensure_future(runtime.run(0, add(b"10")))
        read = asyncio.ensure_future(runtime.run(0, total))
        await asyncio.sleep(0)
        log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "no")
        assert await first == 0
        assert await code_of(write) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await code_of(read) is ErrorCode.COORDINATOR_NOT_AVAILABLE, "it saw the 10"
        await loaded(runtime)
        assert runtime.shards != [shard]
        assert await runtime.run(0, total) == 1
        log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "no")
        assert await code_of(runtime.run(0, add(b"10"))) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await loaded(runtime)
        assert await runtime.run(0, total) == 1

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


def test_the_first_command_of_a_turn_is_appended_at_once_and_the_others_together() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        found = await asyncio.gather(
            runtime.run(0, add(b"1")), runtime.run(0, add(b"2", b"3")), runtime.run(0, total),
            runtime.run(0, add(b"4")),
        )  # fmt: skip
        assert found == [0, 1, 6, 6], "each sees what the earlier ones did"
        assert (log.appends, len(log.batches)) == (2, 2)
        assert runtime.shards[0].offsets == [0, 1, 2, 3]
        await runtime.run(0, add(b"8"))
        assert (log.appends, runtime.shards[0].offsets[-1]) == (3, 4)

    play(story)


def test_no_reply_comes_before_the_append() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        first = asyncio.ensure_future(runtime.run(0, add(b"0")))
        write = asyncio.ensure_future(runtime.run(0, add(b"1")))
        read = asyncio.ensure_future(runtime.run(0, total))
        await asyncio.sleep(0)
        assert first.done() and (runtime.shards[0].total, log.appends) == (1, 1)
        assert not write.done() and not read.done()
        assert await asyncio.gather(write, read) == [0, 1]

    play(story)


def test_one_decision_is_one_batch_whatever_shares_its_turn() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        number = b"1".rjust(1000)
        sizes = [1, 100, 100, 100, 3 * BATCH_BYTES // 1000, 100, 1]
        await asyncio.gather(*(runtime.run(0, add(*[number] * size)) for size in sizes))
        counts = [next(iter(iter_headers(memoryview(b))))[1].record_count for b in log.batches]
        assert counts == [1, 200, 100, 3 * BATCH_BYTES // 1000, 101]
        assert log.appends == 2
        assert await runtime.run(0, total) == sum(sizes)

    play(story)


def test_a_decision_larger_than_a_batch_may_be_is_rejected_whole() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        log.batch_max_bytes = 10_000
        number = b"1".rjust(1000)
        with pytest.raises(KafkaError, match=r"20 records that belong together.*10000") as caught:
            await runtime.run(0, add(*[number] * 20))
        assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR
        assert (await runtime.run(0, total), log.batches) == (0, [])
        assert await runtime.run(0, add(*[number] * 9)) == 0, "the largest that fits"

        def several(shard: Sums, now: Now, token: Token) -> Decisions:
            out = add(*[number] * 20)(shard, now, token)
            return out.split(5_000)

        assert await runtime.run(0, several) == 9
        assert await runtime.run(0, total) == 29

    play(story)


def test_a_part_of_several_decisions_that_is_rejected_ends_them() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        log.batch_max_bytes = 10_000

        def several(shard: Sums, now: Now, token: Token) -> Decisions:
            parts = [add(b"1")(shard, now, -1), add(*[b"1".rjust(1000)] * 20)(shard, now, -1)]
            return [*parts, add(b"4")(shard, now, token)]

        assert await code_of(runtime.run(0, several)) is ErrorCode.UNKNOWN_SERVER_ERROR
        assert await runtime.run(0, total) == 1

    play(story)


def test_a_replay_that_fails_appends_nothing_of_its_turn() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        commands = (add(b"1"), add(b"2"), add(b"poison"))
        results = await asyncio.gather(
            *(runtime.run(0, command) for command in commands), return_exceptions=True
        )
        assert results[0] == 0, "the first was appended at once"
        assert [r.code for r in results if isinstance(r, KafkaError)] == [
            ErrorCode.NOT_COORDINATOR
        ] * 2
        await loaded(runtime)
        assert (await runtime.run(0, total), len(log.batches)) == (1, 1)

    play(story)


def test_another_writer_of_the_partition_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        first = asyncio.ensure_future(runtime.run(0, add(b"0")))
        write = asyncio.ensure_future(runtime.run(0, add(b"1")))
        await asyncio.sleep(0)
        assert first.done()
        builder = BatchBuilder()
        builder.append(0, b"other", b"5")
        log.append(0, 0, memoryview(builder.build()))
        assert await code_of(write) is ErrorCode.NOT_COORDINATOR
        await loaded(runtime)
        assert await runtime.run(0, total) == 6

    play(story)
    assert "another writer" in caplog.text


PRODUCER = Producer(7, 3)


@pytest.mark.parametrize("commit", [True, False])
def test_records_of_a_transaction_count_with_its_marker(*, commit: bool) -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        await asyncio.gather(
            runtime.run(0, add(b"1")),
            runtime.run(0, add_within(PRODUCER, b"10")),
            runtime.run(0, add(b"2")),
        )
        headers = [next(iter(iter_headers(memoryview(b))))[1] for b in log.batches]
        assert log.appends == 2
        assert [(h.producer_id, h.producer_epoch, h.is_transactional) for h in headers] == [
            (-1, -1, False), (7, 3, True), (-1, -1, False),
        ]  # fmt: skip
        assert await runtime.run(0, total) == 3
        await runtime.end_transaction(0, 7, 3, 1, commit=commit)
        assert next(iter(iter_headers(memoryview(log.batches[-1]))))[1].is_control
        wanted = 13 if commit else 3
        assert await runtime.run(0, total) == wanted
        assert await runtime.run(0, add(b"1")) == wanted, "offsets go on behind the marker"
        log.epoch = 1
        runtime.on_leader(0, 1)
        await loaded(runtime)
        assert await runtime.run(0, total) == wanted + 1

    play(story)


def test_an_open_transaction_is_loaded_as_such() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        await runtime.run(0, add_within(PRODUCER, b"10"))
        await runtime.run(0, add(b"1"))
        log.epoch = 1
        runtime.on_leader(0, 1)
        await loaded(runtime)
        assert await runtime.run(0, total) == 1
        await runtime.end_transaction(0, 7, 3, 1, commit=True)
        assert await runtime.run(0, total) == 11

    play(story)


def test_a_marker_comes_behind_what_was_decided_before_it_in_the_same_turn() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        log.is_held = True
        write = asyncio.ensure_future(runtime.run(0, add_within(PRODUCER, b"10")))
        end = asyncio.ensure_future(runtime.end_transaction(0, 7, 3, 1, commit=True))
        await asyncio.sleep(0.01)
        assert len(log.batches) == 2 and not end.done(), "answered when it is committed"
        log.release()
        await asyncio.gather(write, end)
        assert await runtime.run(0, total) == 10

    play(story)


@pytest.mark.parametrize(
    ("met", "answered"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_a_marker_that_is_rejected_ends_nothing(met: ErrorCode, answered: ErrorCode) -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        await runtime.run(0, add_within(PRODUCER, b"10"))
        log.failure = KafkaError(met, "no")
        end = runtime.end_transaction(0, 7, 3, 1, commit=True)
        assert await code_of(end) is answered
        await loaded(runtime)
        assert await runtime.run(0, total) == 0
        await runtime.end_transaction(0, 7, 3, 1, commit=True)
        assert await runtime.run(0, total) == 10

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
