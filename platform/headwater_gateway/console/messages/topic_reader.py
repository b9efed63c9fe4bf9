"""Reads one topic for a browser by an AsyncConsumer that has assigned partitions and no group."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any

from headwater.client.errors import KafkaTimeoutError
from headwater.client.values import ConsumerRecord, TopicPartition
from headwater.errors import UsageError
from headwater_gateway.console.offset_spans import Span

POLL_MS = 500
POLL_RECORDS_MAX = 4_000
CHECK_POLLS_MAX = 20
CONSUMER_OPTIONS: Mapping[str, Any] = {
    "fetch_max_bytes": 16 * 1024 * 1024,
    "fetch_max_wait_ms": 100,
    "client_id": "headwater-console",
}
"""No group, ever: a look at messages must not move anybody's partitions."""


def consumer_options(*, is_committed: bool, is_tail: bool = False) -> dict[str, Any]:
    """The keywords of the consumer. When what it stands before is deleted, a tail goes on at the
    end, any other reader at the log's new start."""
    return {
        **CONSUMER_OPTIONS,
        "isolation_level": "read_committed" if is_committed else "read_uncommitted",
        "auto_offset_reset": "latest" if is_tail else "earliest",
    }


class TopicReader:
    """A consumer on one topic. Of one event loop."""

    shown = ""
    """What is read, for people, where it is not the topic itself."""

    def __init__(self, consumer: Any, topic: str) -> None:
        """`consumer`: an open `headwater.aio.AsyncConsumer`."""
        self._consumer = consumer
        self.topic = topic

    async def bounds(self, partitions: Iterable[int]) -> dict[int, tuple[int, int]]:
        """First offset and end of each partition; with read_committed the last stable offset."""
        names = [TopicPartition(self.topic, partition) for partition in partitions]
        starts = await self._consumer.beginning_offsets(names)
        ends = await self._consumer.end_offsets(names)
        return {tp.partition: (starts[tp], ends[tp]) for tp in names}

    async def at_time(self, partitions: Iterable[int], timestamp_ms: int) -> dict[int, int | None]:
        """The first offset at or after a time; None where no record is."""
        wanted = {TopicPartition(self.topic, p): timestamp_ms for p in partitions}
        found = await self._consumer.offsets_for_times(wanted)
        return {tp.partition: None if at is None else at.offset for tp, at in found.items()}

    async def spans(self, spans: Sequence[Span]) -> AsyncGenerator[list[ConsumerRecord], None]:
        """The records of these offsets, forward, in lists that mix partitions."""
        ends = {span.partition: span.end for span in spans if span.end > span.start}
        await self._begin({span.partition: span.start for span in spans if span.partition in ends})
        while ends:
            records = await self._poll()
            kept = [one for one in records if one.offset < ends.get(one.partition, 0)]
            if kept:
                yield kept
            for partition in list(ends):
                tp = TopicPartition(self.topic, partition)
                if await self._consumer.position(tp) >= ends[partition]:
                    del ends[partition]
                    self._consumer.pause(tp)

    async def tail(self, starts: Mapping[int, int]) -> AsyncGenerator[list[ConsumerRecord], None]:
        """Records from these offsets on, for ever; an empty list when nothing came for a moment."""
        await self._begin(starts)
        while True:
            yield await self._poll()

    async def one(self, partition: int, offset: int) -> ConsumerRecord:
        """The record at an offset. Raises UsageError where none is, which says what is there."""
        start, end = (await self.bounds([partition]))[partition]
        where = f"{self.topic}-{partition} offset {offset}"
        if not start <= offset < end:
            raise UsageError(f"{where} is not in the log, which has [{start}, {end})")
        async for records in self.spans([Span(partition, offset, end)]):
            if records[0].offset == offset:
                return records[0]
            raise UsageError(
                f"{where} has no record (compacted, aborted or a transaction's marker): the next"
                f" one is {records[0].offset}"
            )
        raise UsageError(f"{where} has no record, and none follows it")

    async def check_read(self, partitions: Sequence[int]) -> None:
        """Raises AuthorizationError where the brokers do not let the user read the topic, and
        KafkaTimeoutError where they do not answer: a fetch asks them."""
        end = (await self.bounds(partitions[:1]))[partitions[0]][1]
        answered = self._consumer.statistics().fetches
        await self._begin({partitions[0]: end})
        for _ in range(CHECK_POLLS_MAX):
            await self._poll()
            if self._consumer.statistics().fetches > answered:
                await self._poll()  # it raises what the answer had
                return
        raise KafkaTimeoutError(
            f"no broker answers whether {self.topic} may be read: its table stays closed"
        )

    async def _begin(self, starts: Mapping[int, int]) -> None:
        names = [TopicPartition(self.topic, partition) for partition in starts]
        await self._consumer.assign(names)
        for tp in names:
            self._consumer.seek(tp, starts[tp.partition])
        if names:
            self._consumer.resume(*names)

    async def _poll(self) -> list[ConsumerRecord]:
        records: list[ConsumerRecord] = await self._consumer.getmany(
            timeout_ms=POLL_MS, max_records=POLL_RECORDS_MAX
        )
        return records
