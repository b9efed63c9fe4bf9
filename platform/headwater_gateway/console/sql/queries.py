"""Runs one SQL query for a user: finds its tables, reads them with the user's rights, answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa

from headwater.client.values import ConsumerRecord
from headwater.clock import Clock
from headwater.errors import HeadwaterError, UsageError
from headwater_gateway.console.messages.address import Address, Source
from headwater_gateway.console.messages.browser import Browser, Viewer
from headwater_gateway.console.messages.event_stream import event
from headwater_gateway.console.processes.child import ChildProcess, fork_server
from headwater_gateway.console.shown import visible, visible_lines
from headwater_gateway.console.sql.records_table import RECORDS_SCHEMA
from headwater_gateway.console.sql.sandbox import run_sandbox

QUERY_CHARS_MAX = 20_000
QUERY_S_MAX = 30.0
TABLES_MAX = 4
AT_ONCE_MAX = 2
TABLE_BYTES_MAX = 64 * 1024 * 1024
SUFFIX = "_table"
"""`flights_table`: the same rows from the Delta table of `flights`."""


class Queries:
    """Queries in processes of their own, a few at a time. Of one event loop."""

    def __init__(self, browser: Browser, clock: Clock) -> None:
        self._browser = browser
        self._clock = clock
        self._context = fork_server()
        self._running = 0

    async def events(self, viewer: Viewer, query: str, rows: int) -> AsyncGenerator[bytes, None]:
        """The events of a query: steps, then result or problem. `rows`: newest ones per table."""
        try:
            if not query.strip():
                raise UsageError("the query is empty")
            if len(query) > QUERY_CHARS_MAX:
                raise UsageError(f"the query has more than {QUERY_CHARS_MAX} characters")
            async with self._process() as process:
                began_s = self._clock.monotonic()
                async with asyncio.timeout(QUERY_S_MAX):
                    answer = await process.ask(("names", query), self._schemas(viewer), QUERY_S_MAX)
                    names = await self._topics(viewer, answer["names"])
                    for name, (topic, source) in names.items():
                        yield event("step", {"text": f"Reading {visible(name)} …"})
                        table = await self._load(process, viewer, name, topic, source, rows)
                        yield event("table", table)
                    yield event("step", {"text": "Running the query …"})
                    found = await process.ask(("run", query), self._schemas(viewer), QUERY_S_MAX)
                found["ms"] = round((self._clock.monotonic() - began_s) * 1000)
                yield event("result", found)
        except TimeoutError:
            yield event("problem", {"text": f"the query took more than {QUERY_S_MAX:.0f} s"})
        except HeadwaterError as error:
            yield event("problem", {"text": visible_lines(str(error))})

    def _schemas(self, viewer: Viewer) -> Any:
        return self._browser.schemas_of(viewer)

    @asynccontextmanager
    async def _process(self) -> Any:
        if self._running >= AT_ONCE_MAX:
            raise UsageError(f"{AT_ONCE_MAX} queries run already: wait until one has ended")
        self._running += 1
        process = ChildProcess(self._context, run_sandbox)
        try:
            await process.start()
            try:
                yield process
            finally:
                await asyncio.shield(process.end())
        finally:
            self._running -= 1

    async def _topics(self, viewer: Viewer, names: list[str]) -> dict[str, tuple[str, Source]]:
        """Which topic, and whether from brokers or the Delta table, each name means."""
        if len(names) > TABLES_MAX:
            raise UsageError(f"the query names {len(names)} tables: {TABLES_MAX} are the most")
        known = await viewer.clients.admin.describe_topics(None) if names else {}
        by_name: dict[str, tuple[str, Source]] = {}
        folded = {topic.lower(): topic for topic in known}
        for name in names:
            topic = folded.get(name.lower())
            table = folded.get(name.lower().removesuffix(SUFFIX))
            if topic is not None:
                by_name[name] = (topic, Source.LOG)
            elif table is not None:
                by_name[name] = (table, Source.TABLE)
        return by_name

    async def _load(
        self,
        process: ChildProcess,
        viewer: Viewer,
        name: str,
        topic: str,
        source: Source,
        rows: int,
    ) -> dict[str, Any]:
        at = replace(viewer, topic=topic)
        records: list[ConsumerRecord] = []
        size = 0
        async for some in self._browser.newest_records(at, Address(source=source), rows):
            records.extend(some)
            size += sum(len(one.key or b"") + len(one.value or b"") for one in some)
            if size > TABLE_BYTES_MAX:
                raise UsageError(
                    f"{topic}: {rows} rows are more than {TABLE_BYTES_MAX >> 20} MiB: take fewer"
                )
        data = await asyncio.to_thread(packed, records)
        formats = await self._browser.formats(at)
        request = ("table", name, formats.value, data)
        answer = await process.ask(request, self._schemas(at), QUERY_S_MAX)
        return {**answer, "name": visible(name), "rows": len(records)}


def packed(records: list[ConsumerRecord]) -> bytes:
    """Records as an Arrow stream."""
    columns = [
        pa.array([one.partition for one in records], pa.int32()),
        pa.array([one.offset for one in records], pa.int64()),
        pa.array([one.timestamp for one in records], pa.timestamp("ms", tz="UTC")),
        pa.array([one.key for one in records], pa.binary()),
        pa.array([one.value for one in records], pa.binary()),
    ]
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, RECORDS_SCHEMA) as writer:
        writer.write_table(pa.table(columns, schema=RECORDS_SCHEMA))
    found: bytes = sink.getvalue().to_pybytes()
    return found
