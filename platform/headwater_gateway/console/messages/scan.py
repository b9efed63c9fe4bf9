"""A scan: reads spans of a topic, has workers judge them, and gives rows, counts and progress.

It reads ahead of the workers by a few chunks only. A record that ends its worker is named and left
out; after three of them the scan ends.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

from headwater.client.values import ConsumerRecord
from headwater.clock import Clock
from headwater.errors import UsageError
from headwater_gateway.console.messages.jobs import (
    Counts,
    Job,
    Judged,
    Rendered,
    WorkerEndedError,
)
from headwater_gateway.console.messages.scan_plan import (
    FILTERED_WINDOW_OFFSETS,
    GROWTH,
    chunks,
    cursor_after,
    cursor_before,
    newest_first,
    short_of,
    window,
)
from headwater_gateway.console.messages.worker_pool import WorkerPool
from headwater_gateway.console.offset_spans import Span
from headwater_tier.typed.decoding import SchemaSource

SCAN_S_MAX = 30.0
IN_FLIGHT_MAX = 4
ENDED_MAX = 3
WINDOW_BYTES_MAX = 128 * 1024 * 1024
"""Of rows that wait for their order, newest first."""


@dataclass(slots=True)
class Found:
    """What a scan has found since it was asked last. `passed` of `total` offsets are read."""

    rows: list[Rendered] = field(default_factory=list)
    passed: int = 0
    total: int = 0
    end: str = ""
    """Why the scan has ended: rows, log, time, records; empty while it goes on."""
    cursor: Mapping[int, int] = field(default_factory=dict)
    """Where the next page begins, at the end."""


@dataclass(slots=True)
class _Window:
    """What is read of a window: down to `starts`, unless it was cut."""

    starts: dict[int, int]
    size: int
    rows: list[Rendered] = field(default_factory=list)
    is_cut: bool = False


class Source(Protocol):
    """What is read: a topic at the brokers, or its Delta table."""

    def spans(self, spans: Sequence[Span]) -> AsyncGenerator[list[ConsumerRecord], None]:
        """The records of these offsets, in lists."""

    def tail(self, starts: Mapping[int, int]) -> AsyncGenerator[list[ConsumerRecord], None]:
        """Records from these offsets on, for ever."""


class Scan:
    """One scan of one topic."""

    def __init__(
        self,
        pool: WorkerPool,
        schemas: SchemaSource,
        job: Job,
        clock: Clock,
        seconds: float = SCAN_S_MAX,
    ) -> None:
        """`seconds`: how long it may take."""
        self._pool = pool
        self._schemas = schemas
        self._job = job
        self._number = pool.new_job()
        self._clock = clock
        self._until_s = clock.monotonic() + seconds
        self.counts = Counts()
        self.named: list[str] = []
        """Records that ended their worker, and why."""

    async def check(self) -> None:
        """Raises UsageError for a filter that cannot work."""
        await self._pool.judge(self._number, self._job, [], self._schemas)

    async def forward(
        self, reader: Source, spans: Sequence[Span], rows: int
    ) -> AsyncGenerator[Found, None]:
        """From the starts of the spans to their ends, until there are enough rows."""
        total = sum(span.end - span.start for span in spans)
        left, passed = rows, 0
        cursor = {span.partition: span.start for span in spans}
        async with aclosing(self._judged(reader, spans)) as judged:
            async for records, found in judged:
                kept = found.rows[:left]
                is_enough = len(kept) >= left
                cursor = cursor_after(cursor, records, kept[-1] if is_enough else None)
                left -= len(kept)
                passed = _passed(spans, cursor)
                end = "rows" if is_enough else self._end()
                yield Found(kept, passed, total, end, cursor if end else {})
                if end:
                    return
        yield Found([], total, total, "log", {})

    async def newest(
        self, reader: Source, bounds: Mapping[int, tuple[int, int]], rows: int
    ) -> AsyncGenerator[Found, None]:
        """From the ends back to the starts, until there are enough rows."""
        ends = {p: end for p, (start, end) in bounds.items() if end > start}
        left = rows
        size = FILTERED_WINDOW_OFFSETS if self._job.filter else rows * len(ends)
        total = sum(end - start for start, end in bounds.values())
        while ends:
            seen = _Window(dict(ends), size)
            async with aclosing(self._read_window(reader, seen, bounds, left)) as parts:
                async for _ in parts:
                    yield Found([], _left_of(ends, bounds, total), total)
            size = seen.size * GROWTH
            shown = list(newest_first(seen.rows))[:left]
            is_whole = len(seen.rows) <= left and not seen.is_cut
            spans = [Span(p, seen.starts[p], end) for p, end in ends.items()]
            cursor = cursor_before(spans, shown, is_whole=is_whole)
            left -= len(shown)
            end = self._end() or ("rows" if left <= 0 else "")
            ends = {p: at for p, at in seen.starts.items() if at > bounds[p][0]}
            passed = _left_of(ends, bounds, total)
            yield Found(shown, passed, total, end, _with_rest(cursor, bounds) if end else {})
            if end:
                return
        yield Found([], total, total, "log", {})

    async def _read_window(
        self, reader: Source, seen: _Window, bounds: Mapping[int, tuple[int, int]], rows: int
    ) -> AsyncGenerator[None, None]:
        """Read the offsets before `seen.starts`, further where a gap may hide rows; yields after
        each chunk."""
        todo, size_bytes = window(seen.starts, bounds, seen.size), 0
        while todo:
            async with aclosing(self._judged(reader, todo)) as judged:
                async for _, part in judged:
                    seen.rows.extend(part.rows)
                    size_bytes += sum(len(row.text) for row in part.rows)
                    if size_bytes > WINDOW_BYTES_MAX:
                        raise UsageError(
                            f"the newest rows are more than {WINDOW_BYTES_MAX >> 20} MiB: take"
                            " fewer of them, or from=oldest"
                        )
                    yield
                    if self._end():
                        seen.is_cut = True
                        return
            seen.starts |= {span.partition: span.start for span in todo}
            if self._job.filter:
                return
            seen.size *= GROWTH
            todo = window(short_of(seen.starts, bounds, seen.rows, rows), bounds, seen.size)

    async def tail(self, reader: Source, starts: Mapping[int, int]) -> AsyncGenerator[Found, None]:
        """What comes from now on, for as long as somebody looks."""
        async with aclosing(reader.tail(starts)) as polls:
            async for records in polls:
                rows: list[Rendered] = []
                for chunk in chunks(records):
                    rows.extend((await self._judge(chunk)).rows)
                end = "records" if len(self.named) >= ENDED_MAX else ""
                yield Found(rows, end=end)
                if end:
                    return

    async def _judged(
        self, reader: Source, spans: Sequence[Span]
    ) -> AsyncGenerator[tuple[list[ConsumerRecord], Judged], None]:
        """Chunks in the order of reading, while the next ones are read and judged."""
        pending: deque[tuple[list[ConsumerRecord], asyncio.Task[Judged]]] = deque()
        try:
            async with aclosing(reader.spans(spans)) as polls:
                async for records in polls:
                    for chunk in chunks(records):
                        pending.append((chunk, asyncio.create_task(self._judge(chunk))))
                    while pending and (len(pending) > IN_FLIGHT_MAX or pending[0][1].done()):
                        chunk, task = pending.popleft()
                        yield chunk, await task
            while pending:
                chunk, task = pending.popleft()
                yield chunk, await task
        finally:
            for _, task in pending:
                task.cancel()
            await asyncio.gather(*(task for _, task in pending), return_exceptions=True)

    async def _judge(self, records: list[ConsumerRecord]) -> Judged:
        found = Judged()
        while records:
            try:
                part = await self._pool.judge(self._number, self._job, records, self._schemas)
                records = []
            except WorkerEndedError as error:
                if not 0 <= error.index < len(records):
                    raise
                part = await self._judge(records[: error.index])
                self._name(records[error.index], error.cause)
                records = records[error.index + 1 :] if len(self.named) < ENDED_MAX else []
                self.counts.add(Counts(scanned=1))
                found.rows.extend(part.rows)
                continue
            self.counts.add(part.counts)
            found.rows.extend(part.rows)
        return found

    def _name(self, record: ConsumerRecord, cause: str) -> None:
        self.named.append(f"{record.topic}-{record.partition} offset {record.offset}: {cause}")

    def _end(self) -> str:
        if len(self.named) >= ENDED_MAX:
            return "records"
        return "time" if self._clock.monotonic() >= self._until_s else ""


def _passed(spans: Sequence[Span], cursor: Mapping[int, int]) -> int:
    return sum(min(cursor[span.partition], span.end) - span.start for span in spans)


def _left_of(ends: Mapping[int, int], bounds: Mapping[int, tuple[int, int]], total: int) -> int:
    """Offsets that were read, newest first, when these are left."""
    return total - sum(end - bounds[p][0] for p, end in ends.items())


def _with_rest(cursor: Mapping[int, int], bounds: Mapping[int, tuple[int, int]]) -> dict[int, int]:
    """The cursor of all partitions: those that were read to their starts stay there."""
    return {partition: cursor.get(partition, start) for partition, (start, _) in bounds.items()}
