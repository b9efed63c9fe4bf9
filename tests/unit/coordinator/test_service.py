"""CoordinatorService: placement of keys, shards still loading, deleted topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.errors import ErrorCode, KafkaError
from headwater.testing.clocks import ManualClock
from headwater_broker.coordinator.common.placement import partition_of
from headwater_broker.coordinator.common.service import ARRIVAL_WAIT_S, CoordinatorService
from headwater_broker.coordinator.common.shard import Command, Decision, Now, Token
from headwater_broker.metadata.cache import MetadataDelta
from headwater_broker.replica.partition import Partition
from unit.coordinator.memory_log import MemoryLog
from unit.coordinator.test_runtime import Sums, code_of, total

TOPIC = "__sums"


class Placed:
    """A topic of four partitions, of which this broker leads some."""

    def __init__(self) -> None:
        self.count = 4
        self.led: set[int] = set()

    def partition_count(self) -> int:
        return self.count

    def leads(self, partition: int) -> bool:
        return partition in self.led


class Bench:
    def __init__(self) -> None:
        self.placed = Placed()
        self.clock = ManualClock()
        self.log = MemoryLog()
        self.deleted: list[frozenset[str]] = []
        self.service: CoordinatorService[Sums] = CoordinatorService(
            TOPIC,
            lambda _partition: Sums(),
            self.log,
            self.placed,
            self.clock,
            partition_key=lambda key: key.partition(".")[0],
            topics_deleted=self._topics_deleted,
        )

    def _topics_deleted(self, topics: frozenset[str]) -> Command[Sums]:
        def command(shard: Sums, now: Now, token: Token) -> Decision:
            self.deleted.append(topics)
            return Decision().reply(token, None)

        return command

    def lead(self, partition: int, topic: str = TOPIC, *, leads: bool = True) -> None:
        hosted = SimpleNamespace(
            topic=topic, partition=partition, is_leader=leads, leader_epoch=self.log.epoch
        )
        self.service.leadership_changed(cast(Partition, hosted))

    async def loaded(self) -> None:
        while self.service.runtime.is_loading:
            await asyncio.sleep(0)


def play(story: Callable[[Bench], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        bench = Bench()
        await story(bench)
        await bench.service.close()

    asyncio.run(asyncio.wait_for(run(), 30))


def delta(*deleted: str) -> MetadataDelta:
    nothing = frozenset[str]()
    return MetadataDelta(full=False, topics=nothing, configs=nothing, deleted=frozenset(deleted))


def test_a_key_lives_where_its_partition_key_hashes_to() -> None:
    async def story(b: Bench) -> None:
        assert b.service.partition_of("sink.3") == b.service.partition_of("sink.4")
        assert b.service.partition_of("sink.3") == partition_of("sink", 4)
        b.placed.count = 0
        with pytest.raises(KafkaError, match="__sums is not created yet") as caught:
            b.service.partition_of("sink.3")
        assert caught.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(story)


def test_leadership_of_its_own_topic_loads_and_drops_shards() -> None:
    async def story(b: Bench) -> None:
        b.lead(1)
        b.lead(2, topic="other")
        await b.loaded()
        assert b.service.runtime.partitions == [1]
        b.lead(1, leads=False)
        assert b.service.runtime.partitions == []

    play(story)


def test_a_list_is_not_whole_while_a_shard_that_is_led_here_is_not_here() -> None:
    async def story(b: Bench) -> None:
        assert not b.service.lacks_shards
        b.placed.led.add(2)
        assert b.service.lacks_shards
        b.lead(2)
        await b.loaded()
        assert not b.service.lacks_shards

    play(story)


def test_a_request_waits_for_a_shard_that_is_about_to_come() -> None:
    async def story(b: Bench) -> None:
        partition = b.service.partition_of("k")
        b.placed.led.add(partition)
        asked = asyncio.ensure_future(b.service.run("k", total))
        await asyncio.sleep(0)
        b.log.read_gate = asyncio.Event()
        b.lead(partition)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not asked.done()
        b.log.read_gate.set()
        assert await asked == 0

    play(story)


def test_a_request_waits_only_so_long() -> None:
    async def story(b: Bench) -> None:
        b.placed.led.add(b.service.partition_of("k"))
        asked = asyncio.ensure_future(b.service.run("k", total))
        await asyncio.sleep(0)
        b.clock.advance(ARRIVAL_WAIT_S * 1000)
        b.service.metadata_changed(delta())
        assert await code_of(asked) is ErrorCode.NOT_COORDINATOR

    play(story)


def test_a_key_of_another_broker_is_told_so_at_once() -> None:
    async def story(b: Bench) -> None:
        assert await code_of(b.service.run("k", total)) is ErrorCode.NOT_COORDINATOR

    play(story)


def test_deleted_topics_reach_every_shard(caplog: pytest.LogCaptureFixture) -> None:
    async def story(b: Bench) -> None:
        b.service.metadata_changed(delta("early"))
        for partition in (0, 3):
            b.lead(partition)
        await b.loaded()
        b.service.metadata_changed(delta())
        b.service.metadata_changed(delta("a", "b"))
        while len(b.deleted) < 2:
            await asyncio.sleep(0)
        assert b.deleted == [frozenset(("a", "b"))] * 2
        b.log.depose()
        b.service.metadata_changed(delta("c"))
        while "deleted topics ['c']" not in caplog.text:
            await asyncio.sleep(0)

    play(story)
