"""The runtime's news of commits (`on_committed`), which markers wait for; fenced shards."""

from __future__ import annotations

import asyncio

from headwater.errors import ErrorCode
from headwater.system import SystemClock
from headwater_broker.coordinator.common.runtime import CoordinatorRuntime
from headwater_broker.coordinator.common.shard import Decision, Now, StoredRecord, Token
from unit.coordinator.memory_log import MemoryLog
from unit.coordinator.test_runtime import Sums, add, code_of, loaded, play


class Commits:
    """What `on_committed` was called with: high watermarks."""

    def __init__(self) -> None:
        self.ends: list[int] = []
        self.log = MemoryLog()
        self.runtime: CoordinatorRuntime[Sums] = CoordinatorRuntime(
            "sums", lambda _: Sums(), self.log, SystemClock(), on_committed=self._committed
        )

    def _committed(self, partition: int, epoch: int, shard: Sums, high_watermark: int) -> None:
        assert self.runtime.is_current(partition, shard)
        self.ends.append(high_watermark)


def test_a_commit_is_heard_of_also_when_no_reply_waits_for_it() -> None:
    def wake_and_add(shard: Sums, now: Now, token: Token) -> Decision:
        shard.deadline = now.steady_ms  # `tick` follows
        out = Decision()
        out.records.append(StoredRecord(b"k", b"1"))
        return out  # the token gets no answer

    async def story() -> None:
        c = Commits()
        c.runtime.on_leader(0, 0)
        await loaded(c.runtime)
        c.log.is_held = True
        unanswered = asyncio.ensure_future(c.runtime.run(0, wake_and_add))
        for _ in range(5):
            await asyncio.sleep(0)
        assert c.ends == []
        c.log.release()
        while not c.ends:
            await asyncio.sleep(0)
        assert c.ends == [1]
        unanswered.cancel()
        await c.runtime.close()

    asyncio.run(story())


def test_a_load_is_heard_of_once_its_records_are_committed() -> None:
    async def story() -> None:
        c = Commits()
        c.runtime.on_leader(0, 0)
        await loaded(c.runtime)
        await c.runtime.run(0, add(b"1"))
        c.runtime.on_resign(0)
        c.ends.clear()
        c.log.is_held, c.log.high_watermark = True, 0
        c.log.epoch = 1
        c.runtime.on_leader(0, 1)
        await loaded(c.runtime)
        assert c.ends == []
        c.log.release()
        while not c.ends:
            await asyncio.sleep(0)
        assert c.ends == [1]
        await c.runtime.close()

    asyncio.run(story())


def test_a_reply_times_out_although_a_commit_is_waited_for() -> None:
    async def story() -> None:
        c = Commits()
        c.runtime = CoordinatorRuntime(
            "sums",
            lambda _: Sums(),
            c.log,
            SystemClock(),
            write_timeout_ms=20,
            on_committed=lambda *_: None,
        )
        c.runtime.on_leader(0, 0)
        await loaded(c.runtime)
        c.log.is_held = True
        late = await code_of(c.runtime.run(0, add(b"1")))
        assert late is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await c.runtime.close()

    asyncio.run(story())


def test_a_fenced_shard_is_dropped_unless_its_epoch_is_newer() -> None:
    async def story(runtime: CoordinatorRuntime[Sums], log: MemoryLog) -> None:
        runtime.fenced(0, -1)
        assert runtime.is_ready(0)
        runtime.fenced(0, 0)
        assert not runtime.is_hosted(0)

    play(story)


def test_an_unforeseen_error_reloads_the_shard_and_later_replies_are_given() -> None:
    async def story() -> None:
        c = Commits()
        failures = [ValueError("planted")]

        def fail_once(*_: object) -> None:
            if failures:
                raise failures.pop()

        c.runtime = CoordinatorRuntime(
            "sums", lambda _: Sums(), c.log, SystemClock(), on_committed=fail_once
        )
        c.runtime.on_leader(0, 0)
        await loaded(c.runtime)
        c.log.is_held = True
        first = asyncio.ensure_future(c.runtime.run(0, add(b"1")))
        for _ in range(5):
            await asyncio.sleep(0)
        c.log.release()
        await asyncio.wait((first,))
        while failures:
            await asyncio.sleep(0)
        await loaded(c.runtime)
        assert await asyncio.wait_for(c.runtime.run(0, add(b"1")), 5) is not None
        await c.runtime.close()

    asyncio.run(story())
