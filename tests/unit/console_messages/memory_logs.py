"""A topic's log in memory, and a consumer that reads it, for the tests of the message browser."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from headwater.client.values import ConsumerRecord, TopicPartition


def record(partition: int, offset: int, timestamp: int = 0) -> ConsumerRecord:
    return ConsumerRecord("t", partition, offset, timestamp, 0, None, b"%d" % offset, [], 0)


class FakeConsumer:
    """A log in memory: records per partition, ends that may be above the last record (markers)."""

    def __init__(self, log: dict[int, list[ConsumerRecord]], ends: dict[int, int]) -> None:
        self._log, self._ends = log, ends
        self._at: dict[int, int] = {}
        self._paused: set[int] = set()
        self.polls = 0

    async def __aenter__(self) -> FakeConsumer:
        return self

    async def __aexit__(self, *error: object) -> None:
        return None

    async def beginning_offsets(self, names: Iterable[TopicPartition]) -> dict[Any, int]:
        return {tp: min((r.offset for r in self._log[tp.partition]), default=0) for tp in names}

    async def end_offsets(self, names: Iterable[TopicPartition]) -> dict[Any, int]:
        return {tp: self._ends[tp.partition] for tp in names}

    async def assign(self, names: Iterable[TopicPartition]) -> None:
        self._at = dict.fromkeys((tp.partition for tp in names), 0)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self._at[tp.partition] = offset

    def pause(self, *names: TopicPartition) -> None:
        self._paused |= {tp.partition for tp in names}

    def resume(self, *names: TopicPartition) -> None:
        self._paused -= {tp.partition for tp in names}

    def statistics(self) -> SimpleNamespace:
        return SimpleNamespace(fetches=self.polls)

    async def position(self, tp: TopicPartition) -> int:
        return self._at[tp.partition]

    async def getmany(self, timeout_ms: int, max_records: int) -> list[ConsumerRecord]:
        """Three records of a partition, then those of the next one; markers are passed over."""
        self.polls += 1
        assert self.polls < 1000, "it polls for ever"
        found: list[ConsumerRecord] = []
        for partition, at in self._at.items():
            if partition in self._paused:
                continue
            some = [r for r in self._log[partition] if r.offset >= at][:3]
            self._at[partition] = some[-1].offset + 1 if some else self._ends[partition]
            found.extend(some)
        await asyncio.sleep(0)
        return found
