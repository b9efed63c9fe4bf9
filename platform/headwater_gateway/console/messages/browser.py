"""The message browser for one request: from an address to events, lines or a record."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

from headwater.client.values import ConsumerRecord
from headwater.clock import Clock
from headwater.errors import HeadwaterError, KafkaError, UsageError
from headwater_gateway.app.parts import Clients, Login
from headwater_gateway.console.history.table_place import DENIED, locate_table
from headwater_gateway.console.history.table_source import TableSource
from headwater_gateway.console.history.versions import ends_after
from headwater_gateway.console.messages.address import Address, From, Source
from headwater_gateway.console.messages.event_stream import (
    BEAT,
    BEAT_S,
    TailQueue,
    event,
    rows_event,
)
from headwater_gateway.console.messages.jobs import Counts, Job, Render
from headwater_gateway.console.messages.rows import left_out
from headwater_gateway.console.messages.scan import SCAN_S_MAX, Found, Scan
from headwater_gateway.console.messages.scan_plan import newest_spans
from headwater_gateway.console.messages.schema_lookup import SchemaLookup
from headwater_gateway.console.messages.topic_reader import TopicReader, consumer_options
from headwater_gateway.console.messages.worker_pool import WorkerPool
from headwater_gateway.console.offset_spans import Span
from headwater_gateway.console.shown import visible
from headwater_tier.typed.declarations import declared_tables
from headwater_tier.typed.decoding import DeclaredFormat, SchemaSource

STREAMS_MAX = 24
"""Of one user at a time; without a login all are one."""
TAIL_PAUSE_S = 0.15
EXPORT_ROWS_MAX = 100_000
EXPORT_S_MAX = 600.0
ENDS = {
    "rows": "there may be more",
    "log": "all of it has been read",
    "time": "30 s are over",
    "records": "three records took too long",
}


Reader = TopicReader | TableSource


@dataclass(frozen=True, slots=True)
class Viewer:
    """Who looks at which topic."""

    login: Login
    clients: Clients
    topic: str


@dataclass(frozen=True, slots=True)
class Formats:
    """What the topic declares of its keys and values."""

    key: DeclaredFormat | None = None
    value: DeclaredFormat | None = None


class Browser:
    """Reads topics for pages. Of one event loop."""

    def __init__(self, pool: WorkerPool, schemas: SchemaLookup, clock: Clock) -> None:
        self._pool = pool
        self._schemas = schemas
        self._clock = clock
        self._streams: Counter[str] = Counter()

    async def partitions(self, viewer: Viewer, chosen: tuple[int, ...] = ()) -> list[int]:
        """The topic's partitions, or those of them that are chosen. Raises UsageError."""
        admin = viewer.clients.admin
        described = (await admin.describe_topics([viewer.topic], patient=False))[viewer.topic]
        known = [one.partition for one in described.partitions]
        unknown = sorted(set(chosen) - set(known))
        if unknown:
            raise UsageError(
                f"topic {viewer.topic} has no partition {unknown[0]}: it has 0 to {len(known) - 1}"
            )
        return list(chosen) or known

    async def formats(self, viewer: Viewer) -> Formats:
        """The declared formats; none for a user who may not see the topic's configs."""
        try:
            found = await viewer.clients.admin.describe_configs("topic", viewer.topic)
        except KafkaError as error:
            if error.code not in DENIED:
                raise
            return Formats()
        configs = {name: entry.value for name, entry in found.items() if entry.value is not None}
        tables = declared_tables(viewer.topic, configs)
        if tables is None:
            return Formats()
        return Formats(tables.declaration.key, tables.declaration.value)

    async def events(self, viewer: Viewer, address: Address) -> AsyncGenerator[bytes, None]:
        """The events of a stream: start, rows and progress, then done or problem."""
        try:
            with self._counted(viewer.login):
                async with aclosing(self._events(viewer, address)) as events:
                    async for data in events:
                        yield data
        except HeadwaterError as error:
            yield event("problem", {"text": visible(str(error))})

    async def lines(
        self, viewer: Viewer, address: Address, render: Render
    ) -> AsyncGenerator[str, None]:
        """The lines of an export: what the page would show; without a filter in the log's order."""
        end = ""
        async with self._opened(viewer, address) as reader:
            scan = await self._scan(viewer, address, render, EXPORT_S_MAX)
            if address.start is From.NEWEST and not address.filter:
                bounds = await self._newest_bounds(reader, viewer, address)
                ends = {p: end for p, (start, end) in bounds.items() if end > start}
                founds = scan.forward(
                    reader, newest_spans(ends, bounds, address.rows), address.rows
                )
            else:
                founds = await self._found(scan, reader, viewer, address)
            async with aclosing(founds):
                async for found in founds:
                    end = found.end or end
                    for row in found.rows:
                        yield row.text
            for text in scan.named:
                yield left_out(text, render)
            if end in ("time", "records"):
                yield left_out("all that follows, as the export took too long", render)

    def schemas_of(self, viewer: Viewer) -> SchemaSource:
        """The schemas that the user may read."""
        return self._schemas.of(viewer.login)

    async def newest_records(
        self, viewer: Viewer, address: Address, offsets: int
    ) -> AsyncGenerator[list[ConsumerRecord], None]:
        """The records of the newest offsets, of all partitions together."""
        partitions = await self.partitions(viewer, address.partitions)
        async with self._opened(viewer, address) as reader:
            bounds = await reader.bounds(partitions)
            ends = {p: end for p, (start, end) in bounds.items() if end > start}
            spans = newest_spans(ends, bounds, offsets)
            async with aclosing(reader.spans(spans)) as polls:
                async for records in polls:
                    yield records

    async def record(self, viewer: Viewer, partition: int, offset: int) -> ConsumerRecord:
        """One record. Raises UsageError where none is."""
        await self.partitions(viewer, (partition,))
        # A record of an open or aborted transaction has an address too.
        options = consumer_options(is_committed=False)
        async with viewer.clients.consumer(**options) as consumer:
            return await TopicReader(consumer, viewer.topic).one(partition, offset)

    async def detail(
        self, viewer: Viewer, address: Address, partition: int, offset: int
    ) -> dict[str, Any]:
        """All of one record, as `rows.detail_of` gives it."""
        record = await self.record(viewer, partition, offset)
        formats = await self.formats(viewer)
        job = Job("", address.key, address.value, formats.key, formats.value)
        return await self._pool.detail(job, record, self._schemas.of(viewer.login))

    async def _events(self, viewer: Viewer, address: Address) -> AsyncGenerator[bytes, None]:
        async with self._opened(viewer, address) as reader:
            scan = await self._scan(viewer, address, Render.ROWS)
            yield event("start", {"live": address.start is From.LIVE, "source": reader.shown})
            if address.start is From.LIVE:
                partitions = await self.partitions(viewer, address.partitions)
                starts = {p: end for p, (_, end) in (await reader.bounds(partitions)).items()}
                events = self._tail(scan, reader, starts)
            else:
                founds = await self._found(scan, reader, viewer, address)
                events = self._pages(scan, founds, address)
            async with aclosing(events):
                async for data in events:
                    yield data

    async def _pages(
        self, scan: Scan, founds: AsyncGenerator[Found, None], address: Address
    ) -> AsyncGenerator[bytes, None]:
        began_s = self._clock.monotonic()
        async with aclosing(founds):
            async for found in founds:
                if found.rows:
                    yield rows_event([row.text for row in found.rows])
                progress = _progress(scan.counts, scan.named)
                progress |= {"passed": str(found.passed), "total": str(found.total)}
                progress["ms"] = round((self._clock.monotonic() - began_s) * 1000)
                yield event("progress", progress)
                if found.end:
                    cursor = tuple(sorted(found.cursor.items()))
                    more = address.query(cursor=cursor) if cursor else ""
                    yield event("done", {"end": found.end, "why": ENDS[found.end], "more": more})

    async def _tail(
        self, scan: Scan, reader: Reader, starts: Mapping[int, int]
    ) -> AsyncGenerator[bytes, None]:
        queue = TailQueue()
        pump = asyncio.create_task(_pumped(scan, reader, starts, queue))
        try:
            while not pump.done():
                rows = await queue.take(BEAT_S)
                yield rows_event(rows) if rows else BEAT
                progress = _progress(scan.counts, scan.named)
                yield event("progress", progress | {"dropped": queue.dropped})
                await asyncio.sleep(TAIL_PAUSE_S)
            await pump
            yield event("done", {"end": "records", "why": ENDS["records"], "more": ""})
        finally:
            pump.cancel()
            await asyncio.gather(pump, return_exceptions=True)

    async def _scan(
        self, viewer: Viewer, address: Address, render: Render, seconds: float = SCAN_S_MAX
    ) -> Scan:
        formats = await self.formats(viewer)
        job = Job(address.filter, address.key, address.value, formats.key, formats.value, render)
        scan = Scan(self._pool, self._schemas.of(viewer.login), job, self._clock, seconds)
        if address.filter:
            await scan.check()
        return scan

    async def _found(
        self, scan: Scan, reader: Reader, viewer: Viewer, address: Address
    ) -> AsyncGenerator[Found, None]:
        """The scan that an address asks for."""
        if address.start is From.NEWEST:
            newest = await self._newest_bounds(reader, viewer, address)
            return scan.newest(reader, newest, address.rows)
        bounds = await reader.bounds(await self.partitions(viewer, address.partitions))
        cursor = dict(address.cursor)
        starts = await self._starts(reader, viewer, address, bounds)
        starts |= {p: at for p, at in cursor.items() if p in bounds}
        spans = [Span(p, max(lo, starts.get(p, lo)), hi) for p, (lo, hi) in bounds.items()]
        return scan.forward(reader, [one for one in spans if one.end > one.start], address.rows)

    async def _newest_bounds(
        self, reader: Reader, viewer: Viewer, address: Address
    ) -> dict[int, tuple[int, int]]:
        """The log's bounds, the ends as the cursor has them."""
        bounds = await reader.bounds(await self.partitions(viewer, address.partitions))
        cursor = dict(address.cursor)
        return {p: (lo, max(lo, min(hi, cursor.get(p, hi)))) for p, (lo, hi) in bounds.items()}

    async def _starts(
        self,
        reader: Reader,
        viewer: Viewer,
        address: Address,
        bounds: Mapping[int, tuple[int, int]],
    ) -> dict[int, int]:
        if address.start is From.OFFSET:
            return dict.fromkeys(bounds, address.at)
        if address.start is From.TIME:
            found = await reader.at_time(bounds, address.at)
            return {p: bounds[p][1] if at is None else at for p, at in found.items()}
        if address.start is From.VERSION:
            location = await locate_table(viewer.clients.admin, viewer.topic)
            return await asyncio.to_thread(ends_after, location, address.at, list(bounds))
        return {}

    @asynccontextmanager
    async def _opened(
        self, viewer: Viewer, address: Address
    ) -> AsyncIterator[TopicReader | TableSource]:
        is_tail = address.start is From.LIVE
        options = consumer_options(is_committed=address.is_committed, is_tail=is_tail)
        async with viewer.clients.consumer(**options) as consumer:
            reader = TopicReader(consumer, viewer.topic)
            if address.source is Source.LOG:
                yield reader
                return
            # The table is read with the rights of this process: first the brokers must let the
            # user read the topic.
            await reader.check_read(await self.partitions(viewer))
        location = await locate_table(viewer.clients.admin, viewer.topic)
        yield await TableSource.open(location)

    @contextmanager
    def _counted(self, login: Login) -> Iterator[None]:
        if self._streams[login.name] >= STREAMS_MAX:
            raise UsageError(f"{STREAMS_MAX} tabs read messages already: close one of them")
        self._streams[login.name] += 1
        try:
            yield
        finally:
            self._streams[login.name] -= 1


async def _pumped(scan: Scan, reader: Reader, starts: Mapping[int, int], queue: TailQueue) -> None:
    async with aclosing(scan.tail(reader, starts)) as founds:
        async for found in founds:
            queue.put(row.text for row in found.rows)


def _progress(counts: Counts, named: list[str]) -> dict[str, Any]:
    return {
        "scanned": counts.scanned,
        "matched": counts.matched,
        "missing": counts.missing,
        "type_errors": counts.type_errors,
        "too_long": counts.too_long,
        "undecodable": counts.undecodable,
        "named": [visible(one) for one in named],
    }
